"""Sockets for the start of a sandbox, without `socket`: its enumerations take longer to load than bubblewrap runs.

    from sandbox import sockets as socket

has the same constants and calls, and `socket.socket` with what the start needs. Where more is needed (asyncio, a caller
of the API), `standard()` makes a standard socket of it.

An address of a Unix socket has at most about 100 bytes, and the registry's path may be longer: hence `address_in`.
"""

from __future__ import annotations

import _socket
import errno
import os
import sys

from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket as StandardSocket
    from typing import Any


LINUX = sys.platform == "linux"
# Errors of `accept` after which it is worth trying again.
TEMPORARY = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
_LONGEST = 103  # bytes of an address on macOS, without the zero at its end


def __getattr__(name: str) -> Any:
    """The constants (not every system has all of them)."""
    return getattr(_socket, name)


class socket(_socket.socket):
    """The interpreter's own socket, which also works in a `with` statement. Descriptors are not inheritable."""

    def __enter__(self) -> socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def socketpair() -> tuple[socket, socket]:
    """Two connected stream sockets."""
    ours, theirs = _socket.socketpair()
    kind = ours.family, ours.type, ours.proto  # so that nobody has to ask the kernel
    return socket(*kind, fileno=ours.detach()), socket(*kind, fileno=theirs.detach())


def accept(listener: _socket.socket) -> StandardSocket:
    """The next connection, as a standard socket. Raises OSError."""
    descriptor, _ = listener._accept()  # type: ignore[attr-defined]  # all that `socket.accept` calls
    from socket import socket as standard_socket

    return standard_socket(fileno=descriptor)


def standard(sock: _socket.socket) -> StandardSocket:
    """The same socket as a standard one; `sock` is closed."""
    from socket import socket as standard_socket

    return standard_socket(fileno=sock.detach())


def address_in(path: str, directory: int, name: str, *, proc: bool = LINUX) -> str:
    """An address for the socket `name` in the directory at `path`, which is open as `directory`.

    On Linux a path through the descriptor is always short enough. Elsewhere it is the real path; raises SandboxError
    when that is too long.
    """
    if proc:
        return f"/proc/self/fd/{directory}/{name}"
    if len(os.fsencode(f"{path}/{name}")) > _LONGEST:
        raise SandboxError("{path} is too long for a socket; set SANDBOX_HOME to a shorter path", path=f"{path}/{name}")
    return f"{path}/{name}"


def connect_in(sock: _socket.socket, path: str, name: str) -> None:
    """Connects to the socket `name` in the directory at `path`, however long that is. Raises OSError, SandboxError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.connect(address_in(path, directory, name))
    finally:
        os.close(directory)
