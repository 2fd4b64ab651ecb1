"""Whether a Unix socket in a project belongs to a tenant or to a program on the host.

The file does not say. The kernel does: it lists the sockets of a network namespace with the inodes of their files,
and tenants have a network namespace of their own.
"""

from __future__ import annotations

import os
from struct import Struct

_HEADER = Struct("IHHII")  # struct nlmsghdr
_REQUEST = Struct("BBHIIIII")  # struct unix_diag_req
_ATTRIBUTE = Struct("HH")  # struct rtattr
_MESSAGE_SIZE = 16  # struct unix_diag_msg
_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _DUMP, _DONE = 4, 20, 0x301, 3
_SHOW_NAME, _SHOW_VFS, _NAME, _VFS = 1, 2, 0, 1
_AF_UNIX = 1


def sockets_of_the_host(paths: list[str]) -> list[str]:
    """Those of `paths` that are sockets made by a program in our own network namespace. Raises OSError."""
    inodes = {}
    for path in paths:
        try:
            inodes[path] = os.lstat(path).st_ino & 0xFFFFFFFF  # the kernel lists only these bits
        except OSError:
            continue  # gone since
    ours = _listed() if inodes else set()
    return [path for path, inode in inodes.items() if inode in ours]


def named_sockets_of_the_host() -> list[str]:
    """The real paths of all sockets that programs in our own network namespace bound to an absolute path, and that a
    process without capabilities gets to. Raises OSError."""
    names = dict.fromkeys(os.fsdecode(data) for kind, data in _attributes() if kind == _NAME and data.startswith(b"/"))
    paths = dict.fromkeys(real for name in names if os.path.lexists(real := os.path.realpath(name)))
    return [path for path in paths if _in_reach(path)]


def _in_reach(path: str) -> bool:
    """Whether the permissions of the directories above let us through. Root gets to more, but not in a sandbox, where
    nothing can be mounted there and tenants do not get there either."""
    user, groups = os.geteuid(), {os.getegid(), *os.getgroups()}
    while (path := os.path.dirname(path)) != "/":
        try:
            info, has_list = os.stat(path), _has_access_list(path)
        except OSError:
            continue
        bit = 0o100 if info.st_uid == user else 0o010 if info.st_gid in groups else 0o001
        if not info.st_mode & bit and not has_list:
            return False
    return True


def _has_access_list(path: str) -> bool:
    import sys

    return sys.platform != "linux" or "system.posix_acl_access" in os.listxattr(path)


def _listed() -> set[int]:
    return {int.from_bytes(data[:4], "little") for kind, data in _attributes() if kind == _VFS}


def _attributes() -> list[tuple[int, bytes]]:
    import socket
    import sys

    if sys.platform != "linux":
        raise OSError("only Linux lists sockets")
    found: list[tuple[int, bytes]] = []
    request = _REQUEST.pack(_AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_NAME | _SHOW_VFS, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP, 0, 0) + request)
        while True:
            data = kernel.recv(2**16)
            at = 0
            while at < len(data):
                size, kind, *_ = _HEADER.unpack_from(data, at)
                if kind != _SOCK_DIAG_BY_FAMILY:  # the end, or an error
                    if kind != _DONE:
                        raise OSError("the kernel does not list sockets")
                    return found
                found += _attributes_in(data, at + _HEADER.size + _MESSAGE_SIZE, at + size)
                at += (size + 3) & ~3


def _attributes_in(data: bytes, at: int, end: int) -> list[tuple[int, bytes]]:
    found = []
    while at < end:
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        found.append((kind, data[at + 4 : at + size].rstrip(b"\0") if kind == _NAME else data[at + 4 : at + size]))
        at += (size + 3) & ~3
    return found
