"""What a machine needs of the room around it: QEMU and two file servers as its tenants, joined by sockets."""

from __future__ import annotations

import array
import os
import socket

from sandbox.engines.qemu.command import DIRECTORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.engines.base import Running
    from sandbox.guest.process import Process

GUEST = f"{DIRECTORY}/guest"
SAVED = "--saved"
NODES = "nodes"  # of a template: the system's files that its kernel knows


class Machine:
    """The processes around one machine, and the two sockets to it that are the owner's: control and monitor.

    `words` start QEMU. `fixed` are directories of the room that nothing on the host changes meanwhile.
    """

    def __init__(
        self,
        room: Running,
        words: Sequence[str],
        fixed: Sequence[str],
        *,
        saved: bool = False,
        set_up: bool = False,
        nodes: str = f"{DIRECTORY}/{NODES}",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`saved`: the servers wait to be told what those of another machine knew (saved.py). `set_up`: the
        room's server does, and the system's has the template's table. `nodes`: the table of
        the system's files that the machine knows. `environment`: QEMU's."""
        self._environment = environment or {}
        self._helpers: list[tuple[Process, int]] = []
        self.servers: list[socket.socket] = []  # where each can be asked for what it knows: the system's, the room's
        pairs = [socket.socketpair() for _ in range(6)]  # in the order of their descriptors in QEMU
        (self.control, system, system_bytes, files, files_bytes, self.monitor) = (ours for ours, _ in pairs)
        try:
            self._serve(room, ["--share-system", SAVED if saved else nodes], system, system_bytes)
            self._serve(room, ["--share", *((SAVED,) if saved or set_up else ()), *fixed], files, files_bytes)
            self._start_qemu(room, words, [theirs.fileno() for _, theirs in pairs])
        except BaseException:
            self.close()
            raise
        finally:
            for ours, theirs in pairs:
                theirs.close()
                if ours not in (self.control, self.monitor):
                    ours.close()

    def _start_qemu(self, room: Running, words: Sequence[str], fds: Sequence[int]) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._start(room, ["--launch", *words], theirs, environment=self._environment)
            ours.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        finally:
            ours.close()
            theirs.close()

    def _serve(self, room: Running, words: Sequence[str], stream: socket.socket, content: socket.socket) -> None:
        ours, theirs = socket.socketpair()
        self.servers.append(ours)
        with theirs:
            self._start(room, words, stream, content, theirs)

    def _start(
        self,
        room: Running,
        words: Sequence[str],
        stdin: socket.socket,
        stdout: socket.socket | None = None,
        stderr: socket.socket | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        errors, theirs = os.pipe()
        argv = [GUEST.encode(), *(os.fsencode(word) for word in words)]
        variables = [os.fsencode(f"{name}={value}") for name, value in (environment or {}).items()]
        request: dict[str, object] = {"argv": argv, "env": variables, "cwd": b"/"}
        try:
            output = null if stdout is None else stdout.fileno()
            stdio = (stdin.fileno(), output, theirs if stderr is None else stderr.fileno())
            self._helpers.append((room.start(request, words[0], stdio), errors))
        except BaseException:
            os.close(errors)
            raise
        finally:
            os.close(null)
            os.close(theirs)

    def said(self) -> str:
        """What QEMU and the servers printed as errors."""
        texts = []
        for _, errors in self._helpers:
            os.set_blocking(errors, False)
            try:
                texts.append(os.read(errors, 4096).decode(errors="replace").strip())
            except OSError:
                continue
        return "; ".join(filter(None, texts)) or "no message"

    def end(self) -> None:
        """Ends QEMU and waits until the servers have noticed and done what they do then."""
        *servers, (qemu, _) = self._helpers
        qemu.close()
        for server, _ in servers:
            server.wait()

    def close(self) -> None:
        """Ends everything. The room may be gone already."""
        for process, errors in self._helpers:
            process.close()
            os.close(errors)
        self._helpers = []
        for one in (self.control, self.monitor, *self.servers):
            one.close()
