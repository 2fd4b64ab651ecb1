"""Sockets for the start of a sandbox, without `socket`: its enumerations take longer to load than bubblewrap runs.

    from sandbox import sockets as socket

has the same constants and calls, and `socket.socket` with what the start needs. Whoever needs the rest (asyncio, a
caller of the API) gets a standard one from `standard()`.
"""

from __future__ import annotations

import _socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket as StandardSocket
    from typing import Any


def __getattr__(name: str) -> Any:
    """The constants (not every system has all of them)."""
    return getattr(_socket, name)


class socket(_socket.socket):
    """The interpreter's own socket, to be used in a `with` statement too. Descriptors are not inheritable."""

    def __enter__(self) -> socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def socketpair() -> tuple[socket, socket]:
    """Two connected stream sockets."""
    ours, theirs = _socket.socketpair()
    return socket(fileno=ours.detach()), socket(fileno=theirs.detach())


def accept(listener: _socket.socket) -> StandardSocket:
    """The next connection, as a standard socket. Raises OSError."""
    descriptor, _ = listener._accept()  # type: ignore[attr-defined]  # all that `socket.accept` calls
    from socket import socket as standard_socket

    return standard_socket(fileno=descriptor)


def standard(sock: _socket.socket) -> StandardSocket:
    """The same socket as a standard one; `sock` is closed."""
    from socket import socket as standard_socket

    return standard_socket(fileno=sock.detach())
