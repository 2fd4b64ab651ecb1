"""A recording of the screen, made by ffmpeg inside: bounded in length and size, and read after it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.desktop import programs
from sandbox.errors import InvalidArgument, SandboxError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.guest.process import Process
    from sandbox.sandbox import Sandbox

LONGEST = 600  # seconds
MOST_BYTES = 64 * 2**20
_FILE = f"{programs.DIRECTORY}/video.webm"
_WEBM = b"\x1a\x45\xdf\xa3"
_PATIENCE = 30.0  # seconds that ffmpeg has to write the rest


class Video:
    """A recording in progress."""

    def __init__(self, sandbox: Sandbox, found: Mapping[str, str], environment: Mapping[str, str], rate: int) -> None:
        """Begins. Raises InvalidArgument, SandboxError."""
        if not 1 <= rate <= 30:
            raise InvalidArgument("a video must have 1 to {most} frames per second", most=30)
        if "ffmpeg" not in found:
            raise SandboxError("there is no ffmpeg inside, which makes videos")
        argv = [found["ffmpeg"], "-loglevel", "error", "-y", "-f", "x11grab", "-framerate", str(rate)]
        argv += ["-i", environment["DISPLAY"], "-t", str(LONGEST), "-fs", str(MOST_BYTES - 2**20)]
        argv += ["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "1M", "-f", "webm", _FILE]
        self._process: Process = programs.start(sandbox, argv, environment, "video")

    def end(self, sandbox: Sandbox) -> bytes:
        """Ends the recording and returns it. Raises SandboxError."""
        try:
            self._process.write(b"q")  # the key that makes ffmpeg write the rest and end
            self._process.wait(_PATIENCE)
        except (BrokenPipeError, TimeoutError):
            pass
        finally:
            self._process.close()
        try:
            data = sandbox.read_file(_FILE, MOST_BYTES)
            sandbox.remove(_FILE)
        except OSError as problem:
            raise SandboxError("nothing was recorded: {problem}", problem=problem) from problem
        if not data.startswith(_WEBM):
            raise SandboxError("what was recorded is not a video")
        return data

    def close(self) -> None:
        """Abandons the recording. Idempotent."""
        self._process.close()
