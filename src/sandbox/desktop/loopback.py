"""A port of this machine's loopback, where programs of the same user connect."""

from __future__ import annotations

import socket
from threading import Lock, Thread
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    Peer = tuple[str, int]

_ESTABLISHED = "01"  # in /proc/net/tcp
_MOST_CLIENTS = 64


class Loopback:
    """Listens until it is closed. `serve` is called for each connection, in a thread of its own."""

    def __init__(self, port: int, serve: Callable[[socket.socket, Peer], None]) -> None:
        """0 is any free port. Raises SandboxError when the port is taken."""
        self._serve = serve
        self._clients: set[socket.socket] = set()
        self._lock = Lock()
        try:
            self._listener = socket.create_server(("127.0.0.1", port))
        except OSError as problem:
            raise SandboxError("port {port} cannot be used: {problem}", port=port, problem=problem) from problem
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, name="sandbox-loopback", daemon=True).start()

    def close(self) -> None:
        """Stops listening, and ends every connection. Idempotent."""
        with self._lock:
            lines, self._clients = [self._listener, *self._clients], set()
        for line in lines:
            hang_up(line)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                line, peer = self._listener.accept()
            except OSError:
                return
            with self._lock:
                full = len(self._clients) >= _MOST_CLIENTS
                if not full:
                    self._clients.add(line)
            if full:
                line.close()
                continue
            Thread(target=self._served, args=(line, peer), name="sandbox-loopback", daemon=True).start()

    def _served(self, line: socket.socket, peer: Peer) -> None:
        try:
            with line:
                self._serve(line, peer)
        except (OSError, SandboxError):
            pass
        finally:
            with self._lock:
                self._clients.discard(line)


def hang_up(line: socket.socket) -> None:
    """Ends a connection, also for a thread that reads from it."""
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def peer_user(peer: Peer, port: int) -> int | None:
    """The user whose socket is at the other end of a loopback connection to `port`; None when the kernel lists none.

    A socket that its program has closed belongs to nobody. The kernel still lists it, with user 0 and inode 0.
    """
    there, here = f"0100007F:{peer[1]:04X}", f"0100007F:{port:04X}"
    try:
        with open("/proc/net/tcp", encoding="ascii") as table:
            for row in table:
                columns = row.split()
                if len(columns) > 9 and columns[1] == there and columns[2] == here:
                    return int(columns[7]) if columns[3] == _ESTABLISHED and columns[9] != "0" else None
    except OSError:
        pass
    return None
