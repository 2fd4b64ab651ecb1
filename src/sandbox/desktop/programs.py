"""The programs inside that make up a desktop: finding them, starting them, and reading what they print."""

from __future__ import annotations

import re
import select
import time
from typing import TYPE_CHECKING

from sandbox.errors import CommandError, SandboxError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.guest.process import Process
    from sandbox.sandbox import Sandbox

DIRECTORY = "/tmp/.desktop"
# The system's own directories, not the tenant's PATH. In an image, tenants may still have replaced these programs.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WANTED = (
    "Xvnc", "Xvfb", "openbox", "pulseaudio", "parec", "pacat", "ffmpeg", "chromium", "chromium-browser",
    "google-chrome", "certutil",
)  # fmt: skip
_MOST_READS = 16  # of a program's output, each time somebody asks whether it has ended
_FOUND = re.compile(r"(?:/[A-Za-z0-9._+-]+)+")


def find(sandbox: Sandbox) -> dict[str, str]:
    """The paths of the programs that exist inside, by name."""
    script = 'for name; do command -v "$name"; done'
    told = sandbox.exec(
        ["/bin/sh", "-c", script, "sh", *WANTED], env={"PATH": PATH}, timeout=10, max_output=2**14
    ).stdout
    paths = (line for line in told.splitlines() if _FOUND.fullmatch(line))
    return {name: path for path in paths if (name := path.rpartition("/")[2]) in WANTED}


def make_directory(sandbox: Sandbox) -> None:
    """Makes the directory for sockets and logs. Raises SandboxError: a tenant may have put something else there."""
    try:
        sandbox.mkdir(DIRECTORY, 0o700)
    except OSError as problem:
        raise SandboxError("{path} cannot be used: {problem}", path=DIRECTORY, problem=problem.strerror) from problem


def write(sandbox: Sandbox, path: str, content: bytes) -> None:
    """Writes a file inside. Raises SandboxError."""
    try:
        sandbox.write_file(path, content, 0o600)
    except OSError as problem:
        raise SandboxError("{path} cannot be used: {problem}", path=path, problem=problem.strerror) from problem


def start(sandbox: Sandbox, argv: Sequence[str], env: Mapping[str, str], log: str) -> Process:
    """Starts a background program, with its stderr in a log file. Raises SandboxError."""
    script = f'exec "$@" 2>{DIRECTORY}/{log}.log'
    try:
        return sandbox._service(["/bin/sh", "-c", script, "sh", *argv], env={"PATH": PATH, **env})
    except CommandError as problem:
        raise SandboxError("{program} cannot be started: {problem}", program=argv[0], problem=problem) from problem


def complaints(sandbox: Sandbox, log: str) -> str:
    """The last lines of a program's log, safe to print."""
    try:
        text = sandbox.read_file(f"{DIRECTORY}/{log}.log", 2**20)[-1000:].decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line for line in text.splitlines() if line.strip()]
    return "; ".join("".join(one if one.isprintable() else "?" for one in line)[:200] for line in lines[-3:])


def has_ended(process: Process) -> bool:
    """Whether a program has ended, without waiting for it. Discards its output."""
    for _ in range(_MOST_READS):  # a program that never stops printing has not ended
        if process.stdout is None or not select.select([process.stdout], [], [], 0)[0]:
            break
        if not process.read(2**12):
            return True
    return process.stdout is None


def first_line(process: Process, seconds: float) -> bytes:
    """The first line that a program prints; b"" if it ends or prints none within `seconds`."""
    line, until = bytearray(), time.monotonic() + seconds
    while not line.endswith(b"\n") and len(line) < 64:
        left = max(0.0, until - time.monotonic())
        if process.stdout is None or not select.select([process.stdout], [], [], left)[0]:
            return b""
        data = process.read(1)
        if not data:
            return b""
        line += data
    return bytes(line)
