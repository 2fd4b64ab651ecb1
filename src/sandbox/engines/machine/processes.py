"""The processes around a machine: the program that runs it and its file servers, as tenants of the room."""

from __future__ import annotations

import array
import os
import socket

from sandbox.engines.machine.room_paths import DIRECTORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.engines.base import Running
    from sandbox.guest.process import Process

GUEST = f"{DIRECTORY}/guest"


class RoomProcesses:
    """The processes started in a room for one machine. Subclasses hold the streams to it."""

    def __init__(self, room: Running) -> None:
        self._room = room
        self._helpers: list[tuple[Process, int]] = []

    def launch(self, words: Sequence[str], fds: Sequence[int], environment: Mapping[str, str] | None = None) -> None:
        """Starts the program that runs the machine, confined unless `words` begin with `--template`."""
        ours, theirs = socket.socketpair()
        try:
            self.start(["--launch", *words], theirs, environment=environment)
            ours.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
        finally:
            ours.close()
            theirs.close()

    def start(
        self,
        words: Sequence[str],
        stdin: socket.socket,
        stdout: socket.socket | None = None,
        stderr: socket.socket | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        vital: bool = False,
    ) -> None:
        """Starts our guest program in one of its other roles. The room ends when a `vital` one fails."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        errors, theirs = os.pipe()
        argv = [GUEST.encode(), *(os.fsencode(word) for word in words)]
        variables = [os.fsencode(f"{name}={value}") for name, value in (environment or {}).items()]
        request: dict[str, object] = {"argv": argv, "env": variables, "cwd": b"/", "vital": vital}
        try:
            output = null if stdout is None else stdout.fileno()
            stdio = (stdin.fileno(), output, theirs if stderr is None else stderr.fileno())
            self._helpers.append((self._room.start(request, words[0], stdio), errors))
        except BaseException:
            os.close(errors)
            raise
        finally:
            os.close(null)
            os.close(theirs)

    def said(self) -> str:
        """What they printed to stderr."""
        texts = []
        for _, errors in self._helpers:
            os.set_blocking(errors, False)
            try:
                texts.append(os.read(errors, 4096).decode(errors="replace").strip())
            except OSError:
                continue
        return "; ".join(filter(None, texts)) or "no message"

    def close(self) -> None:
        """Ends all of them. The room may be gone already."""
        for process, errors in self._helpers:
            process.close()
            os.close(errors)
        self._helpers = []
