"""The engine's own command: found, called without a shell, with bounded output.

We do not use its REST interface: rootless Podman has no daemon to serve it, and the command knows contexts and Docker
Desktop's paths.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from sandbox.errors import EngineUnavailable, Message, SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, BinaryIO

# Not from PATH: a project could put a program there, which would run outside the walls.
PLACES = (
    "/usr/bin",
    "/usr/local/bin",
    "/opt/homebrew/bin",
    "/opt/podman/bin",
    "/snap/bin",
    "/run/current-system/sw/bin",
)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # for programs that the command starts
PATIENCE = 60.0  # seconds for an answer; a pull gets more
MOST = 8 * 2**20  # bytes of an answer
_SAID = 2000  # characters of an error that are shown

PLATFORM = sys.platform
APPLE = "apple-container"  # on a Mac; elsewhere a program of that name is another one
PROGRAMS = {APPLE: "container"}  # where it is not the engine's name

INSTALL = {
    "docker": Message("Docker is not installed: `apt install docker.io`"),
    "podman": Message("Podman is not installed: `apt install podman uidmap`"),
    APPLE: Message("Apple's `container` is not installed: `brew install container`"),
}


class CommandFailed(SandboxError):
    """The command failed; `said` is its message."""

    def __init__(self, name: str, said: str) -> None:
        super().__init__("{name}: {said}", name=name, said=said)
        self.said = said


class Cli:
    """The command of one engine: `docker`, `podman`, or Apple's `container`."""

    def __init__(self, name: str) -> None:
        """Raises EngineUnavailable when it is not installed."""
        found = find(name)
        if found is None:
            raise EngineUnavailable(INSTALL[name])
        self.name = name
        self.path = found

    def run(self, *words: str, stdin: int = subprocess.DEVNULL, patience: float = PATIENCE) -> str:
        """The output of `docker WORDS…`. Raises CommandFailed, and EngineUnavailable when it does not answer."""
        with tempfile.TemporaryFile() as errors:
            process = self.start(words, errors, stdin=stdin, stdout=subprocess.PIPE)
            assert process.stdout is not None
            timer = _Timer(process, patience)
            with process, process.stdout as output:
                answer = output.read(MOST + 1)
                if len(answer) > MOST:
                    process.kill()
                process.wait()
            if timer.cancel():
                raise EngineUnavailable(
                    "{name} did not answer within {seconds:.0f} seconds (`{name} {word}`)",
                    name=self.name,
                    seconds=patience,
                    word=words[0],
                )
            if len(answer) > MOST:
                raise CommandFailed(self.name, Message("its answer is too long"))
            if process.returncode != 0:
                raise CommandFailed(self.name, said(errors))
        return answer.decode("utf-8", "replace")

    def json(self, *words: str) -> Any:
        """The output of the command, decoded from JSON. Raises CommandFailed, EngineUnavailable."""
        import json

        try:
            return json.loads(self.run(*words) or "null")
        except ValueError:
            raise CommandFailed(self.name, Message("its answer is not JSON")) from None

    def start(
        self,
        words: Sequence[str],
        errors: BinaryIO,
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Starts the command. Its stderr goes to `errors`: see `said`."""
        # In a group of its own it does not get the terminal's Ctrl-C: the owner decides what that means.
        return subprocess.Popen(
            [self.path, *words],
            stdin=stdin,
            stdout=stdout,
            stderr=errors,
            env={**os.environ, "PATH": SYSTEM_PATH},
            cwd="/",
            process_group=0,
        )


def find(name: str) -> str | None:
    """Where the engine's command is, if it is installed."""
    if name == APPLE and PLATFORM != "darwin":
        return None
    program = PROGRAMS.get(name, name)
    return next((path for place in PLACES if os.access(path := f"{place}/{program}", os.X_OK)), None)


def said(errors: BinaryIO) -> str:
    """The end of a command's stderr, safe to print on a terminal."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - _SAID))
    return printable(errors.read(_SAID).decode("utf-8", "replace").strip()) or Message("it failed without a message")


def printable(text: str) -> str:
    """`text` in one line, without control characters or escape sequences."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


class _Timer:
    """Kills a process that takes too long."""

    def __init__(self, process: subprocess.Popen[bytes], patience: float) -> None:
        from threading import Timer

        self._process = process
        self._over = False
        self._timer = Timer(patience, self._end)
        self._timer.daemon = True
        self._timer.start()

    def _end(self) -> None:
        self._over = True
        self._process.kill()

    def cancel(self) -> bool:
        """Stops the timer. Returns whether the time was up."""
        self._timer.cancel()
        return self._over
