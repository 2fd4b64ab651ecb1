"""Who is at the other end of a Unix socket."""

from __future__ import annotations

import errno
import os
import struct
import sys

from sandbox import sockets as socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket as StandardSocket

_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED = 0, 1, 76  # macOS: <sys/un.h>, and the size of struct xucred


def same_user(connection: StandardSocket) -> bool:
    """Whether the other end runs as our user, according to the kernel. Raises OSError.

    The directory's mode keeps others out as well, but somebody may change it."""
    return peer_user(connection) == os.geteuid()


def peer_user(connection: StandardSocket, *, linux: bool = sys.platform == "linux") -> int:
    """The user at the other end. Raises OSError where the kernel does not say."""
    if linux:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    credentials = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED)
    version, user = struct.unpack_from("II", credentials)
    if version != 0:
        raise OSError(errno.EPROTO, "the kernel describes the other end in an unknown way")
    return int(user)
