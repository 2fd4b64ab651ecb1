"""Sound of the sandbox's own, against a real PulseAudio: what is played inside is what is recorded, and only there."""

from __future__ import annotations

import io
import math
import struct
import wave
from itertools import pairwise
from threading import Thread

import pytest

from sandbox import Sandbox
from sandbox.errors import Denied, InvalidArgument, SandboxError

pytestmark = pytest.mark.walls


def tone(frequency: float, seconds: float = 2.0, rate: int = 48000) -> bytes:
    """A WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        waves = (int(20000 * math.sin(2 * math.pi * frequency * at / rate)) for at in range(int(seconds * rate)))
        out.writeframes(b"".join(struct.pack("<h", one) for one in waves))
    return file.getvalue()


def heard(wav: bytes) -> tuple[float, int]:
    """The frequency of what a recording holds, by how often it crosses zero, and how loud it is."""
    with wave.open(io.BytesIO(wav)) as file:
        assert (file.getnchannels(), file.getframerate(), file.getsampwidth()) == (2, 48000, 2)
        samples = struct.unpack(f"<{2 * file.getnframes()}h", file.readframes(file.getnframes()))[::2]
    loud = [at for at, one in enumerate(samples) if abs(one) > 2000]
    if not loud:
        return 0.0, 0
    part = samples[loud[0] : loud[-1] + 1]
    crossings = sum(1 for one, two in pairwise(part) if one < 0 <= two)
    return crossings * 48000 / len(part), max(part)


def test_a_tone_played_inside_is_recorded_and_its_frequency_found(sandbox: Sandbox) -> None:
    sandbox.desktop.record_audio(0.25)  # it runs
    player = Thread(target=sandbox.desktop.play_audio, args=(tone(1000, 3.0),))
    player.start()
    wav = sandbox.desktop.record_audio(2.5)
    player.join()
    frequency, loudness = heard(wav)
    assert abs(frequency - 1000) < 30 and loudness > 10000


@pytest.mark.desktop
def test_no_sound_passes_between_two_sandboxes(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path_factory.mktemp("other"))}}) as other:
        other.desktop.record_audio(0.25)
        player = Thread(target=sandbox.desktop.play_audio, args=(tone(440, 1.0),))
        player.start()
        assert heard(other.desktop.record_audio(1.0)) == (0.0, 0)
        player.join()


def test_recordings_have_bounds_and_only_sound_is_accepted(sandbox: Sandbox) -> None:
    for wrong in (0.1, 31, 10**9):
        with pytest.raises(InvalidArgument):
            sandbox.desktop.record_audio(wrong)
    with pytest.raises(InvalidArgument):
        sandbox.desktop.play_audio(b"x", "exe")
    with pytest.raises(SandboxError, match="cannot be played"):
        sandbox.desktop.play_audio(b"this is no sound")
    sandbox.config.desktop.sound = False
    with pytest.raises(Denied, match="desktop.sound"):
        sandbox.desktop.record_audio(1)


@pytest.mark.desktop
def test_capabilities_are_only_those_that_work(sandbox: Sandbox) -> None:
    assert all(sandbox.desktop.capabilities().values())
    sandbox.config.desktop.sound = False
    without = sandbox.desktop.capabilities()
    assert without["screenshot"] and without["audioRecord"] is None and without["audioPlay"] is None


@pytest.mark.desktop
def test_the_screen_is_recorded_as_a_video(sandbox: Sandbox) -> None:
    sandbox.desktop.start_video()
    sandbox.desktop.click(10, 10)
    Thread(target=sandbox.desktop.record_audio, args=(1,)).run()  # a second passes
    video = sandbox.desktop.stop_video()
    assert video[:4] == b"\x1a\x45\xdf\xa3"
    sandbox.write_file("/tmp/video.webm", video)
    told = sandbox.exec("ffprobe -v error -show_entries stream=width,height -of csv=p=0 /tmp/video.webm")
    assert told.stdout.strip() == "800,600"
