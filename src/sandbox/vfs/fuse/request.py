"""A request of the kernel, and file attributes in the form that it expects."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

from sandbox.vfs.fuse import structs
from sandbox.vfs.fuse.structs import Attr
from sandbox.vfs.provider import failure

if TYPE_CHECKING:
    from sandbox.vfs.fuse.nodes import Node
    from sandbox.vfs.provider import Changes, FileInfo

REGULAR = 0o100000
KIND = 0o170000
SET_ID = 0o6000


class FuseRequest:
    """One request of the kernel; `body` is valid until it is answered."""

    __slots__ = ("body", "gid", "node", "op", "pid", "uid", "unique")

    def __init__(self, data: memoryview) -> None:
        _, self.op, self.unique, self.node, self.uid, self.gid, self.pid, _, _ = structs.IN_HEADER.unpack_from(data)
        self.body = data[structs.IN_HEADER.size :]

    def names(self, skip: int) -> list[str]:
        """The NUL-ended strings after the first `skip` bytes."""
        return [os.fsdecode(name) for name in bytes(self.body[skip:]).split(b"\0")[:-1]]

    def changes(self) -> tuple[int, Changes, bool]:
        """Of SETATTR: the number of the open file (0: none), the changes, and whether setuid and setgid are cleared."""
        (
            valid, _, number, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _,
        ) = structs.SETATTR_IN.unpack_from(self.body)  # fmt: skip
        changes: Changes = {}
        if valid & Attr.MODE:
            changes["mode"] = mode & 0o7777
        if valid & Attr.UID:
            changes["uid"] = uid
        if valid & Attr.GID:
            changes["gid"] = gid
        if valid & Attr.SIZE:
            if size >= 1 << 63:
                raise failure(errno.EFBIG)
            changes["size"] = size
        if valid & (Attr.ATIME | Attr.ATIME_NOW):
            changes["atime_ns"] = _nanoseconds(atime, atime_ns, bool(valid & Attr.ATIME_NOW))
        if valid & (Attr.MTIME | Attr.MTIME_NOW):
            changes["mtime_ns"] = _nanoseconds(mtime, mtime_ns, bool(valid & Attr.MTIME_NOW))
        # A request without changes comes before a write: the kernel wants setuid cleared, and to see the result.
        return number if valid & Attr.FH else 0, changes, not valid or bool(valid & Attr.KILL_SUIDGID)


def packed(node: Node, info: FileInfo) -> bytes:
    """A provider's attributes as the kernel's `struct fuse_attr`. Raises OSError for impossible ones."""
    size = info.size
    if not 0 <= size < 1 << 63:
        raise failure(errno.EIO)
    atime, atime_ns = divmod(info.atime_ns, 1_000_000_000)
    mtime, mtime_ns = divmod(info.mtime_ns, 1_000_000_000)
    ctime, ctime_ns = divmod(info.ctime_ns, 1_000_000_000)
    return structs.ATTR.pack(
        info.ino or node.id,
        size,
        (size + 511) // 512 if info.blocks is None else info.blocks,
        atime & 0xFFFF_FFFF_FFFF_FFFF,
        mtime & 0xFFFF_FFFF_FFFF_FFFF,
        ctime & 0xFFFF_FFFF_FFFF_FFFF,
        atime_ns,
        mtime_ns,
        ctime_ns,
        node.kind | (info.mode & 0o7777),
        info.nlink,
        info.uid,
        info.gid,
        0,  # tenants have no devices
        4096,
        0,
    )


def _nanoseconds(seconds: int, rest: int, now: bool) -> int:
    if now:
        # The precise clock: never behind a time that the provider, or a file system behind it, has set before.
        return time.time_ns()
    if seconds >= 1 << 63:  # before 1970
        seconds -= 1 << 64
    return seconds * 1_000_000_000 + rest
