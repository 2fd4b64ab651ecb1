"""Sound inside: PulseAudio with a virtual loudspeaker, whose output is also the microphone.

A recording leaves the sandbox as raw samples. The host counts them and adds the WAV header.
"""

from __future__ import annotations

import select
import struct
import time
from typing import TYPE_CHECKING

from sandbox.desktop import programs
from sandbox.errors import InvalidArgument, SandboxError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.guest.process import Process
    from sandbox.sandbox import Sandbox

RATE, CHANNELS, WIDTH = 48000, 2, 2  # samples a second, channels, bytes per sample
SHORTEST_MS, LONGEST_MS = 250, 30_000
MOST_SOUND = 32 * 2**20
LONGEST_PLAY = 300.0
FORMATS = ("wav", "flac", "ogg", "mp3", "m4a", "webm")
_SOCKET = f"{programs.DIRECTORY}/pulse"
_START = 60.0  # seconds: an emulated machine is slow
_SERVER = (
    "-n", "--daemonize=no", "--use-pid-file=no", "--exit-idle-time=-1", "--disable-shm=yes",
    "--load=module-null-sink sink_name=speaker",
    f"--load=module-native-protocol-unix socket={_SOCKET} auth-anonymous=1",
)  # fmt: skip


class Sound:
    """The sound server of one sandbox. `environment` has the variables by which programs inside find it."""

    environment = {"PULSE_SERVER": f"unix:{_SOCKET}"}

    def __init__(self, sandbox: Sandbox, found: Mapping[str, str]) -> None:
        """Starts it. Raises SandboxError."""
        if "pulseaudio" not in found or "parec" not in found:
            raise SandboxError("there is no sound inside: install PulseAudio (Debian: pulseaudio, pulseaudio-utils)")
        self._found = found
        programs.make_directory(sandbox)
        run = {"XDG_RUNTIME_DIR": programs.DIRECTORY, "PULSE_RUNTIME_PATH": programs.DIRECTORY}
        self._process: Process = programs.start(sandbox, [found["pulseaudio"], *_SERVER], run, "sound")
        try:
            self._await(sandbox)
        except BaseException:
            self.close()
            raise

    def _await(self, sandbox: Sandbox) -> None:
        end = time.monotonic() + _START
        while True:
            try:
                sandbox._dial_path(_SOCKET).close()
                return
            except OSError:
                if time.monotonic() > end:
                    problem = programs.complaints(sandbox, "sound")
                    raise SandboxError("the sound inside did not start: {problem}", problem=problem) from None
            time.sleep(0.02)

    def record(self, sandbox: Sandbox, duration_ms: int) -> bytes:
        """A WAV file of what is played from now on. Raises InvalidArgument, SandboxError."""
        if not SHORTEST_MS <= duration_ms <= LONGEST_MS:
            raise InvalidArgument("a recording must last {least} to {most} ms", least=SHORTEST_MS, most=LONGEST_MS)
        size = RATE * duration_ms // 1000 * CHANNELS * WIDTH
        argv = [self._found["parec"], "--device=speaker.monitor", "--format=s16le", f"--rate={RATE}"]
        argv += [f"--channels={CHANNELS}", "--raw", "--latency-msec=20"]
        process = programs.start(sandbox, argv, self.environment, "record")
        try:
            samples = _exactly(process, size, time.monotonic() + duration_ms / 1000 + _START)
        finally:
            process.close()
        return _header(size) + samples

    def play(self, sandbox: Sandbox, data: bytes, format: str) -> None:
        """Plays a file to its end. Raises InvalidArgument, SandboxError."""
        if format not in FORMATS:
            raise InvalidArgument(
                "the format of a sound must be {known}, not {format!r}", known=", ".join(FORMATS), format=format
            )
        if not data or len(data) > MOST_SOUND:
            raise InvalidArgument("a sound must have 1 to {most} bytes", most=MOST_SOUND)
        if "ffmpeg" not in self._found:
            raise SandboxError("there is no ffmpeg inside, which plays sounds")
        # Bytes in, samples out: a file that refers to a network address must not make ffmpeg fetch it.
        argv = [self._found["ffmpeg"], "-nostdin", "-loglevel", "error", "-protocol_whitelist", "pipe,file"]
        argv += ["-i", "pipe:0", "-vn", "-f", "pulse", "-device", "speaker", "sandbox"]
        told = sandbox.exec(argv, env=self.environment, input=data, timeout=LONGEST_PLAY, max_output=2**16)
        if told.exit_code != 0:
            problem = "".join(one if one.isprintable() else " " for one in told.stderr[-300:])
            if "Invalid data found" in told.stderr:
                raise InvalidArgument("the sound cannot be played: {problem}", problem=problem)
            raise SandboxError("the sound cannot be played: {problem}", problem=problem)

    def close(self) -> None:
        """Ends it. Idempotent."""
        self._process.close()


def _exactly(process: Process, size: int, until: float) -> bytes:
    got = bytearray()
    while len(got) < size:
        left = until - time.monotonic()
        ready = process.stdout is not None and left > 0 and select.select([process.stdout], [], [], left)[0]
        data = process.read(min(size - len(got), 2**16)) if ready else b""
        if not data:
            raise SandboxError("the sound server inside has ended or hangs: nothing more was recorded")
        got += data
    return bytes(got)


def _header(size: int) -> bytes:
    form = struct.pack("<HHIIHH", 1, CHANNELS, RATE, RATE * CHANNELS * WIDTH, CHANNELS * WIDTH, 8 * WIDTH)
    return b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt \x10\0\0\0" + form + b"data" + struct.pack("<I", size)
