"""Requests about attributes: those of a file, its extended ones, and the space that is left."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from sandbox.vfs.fuse import structs
from sandbox.vfs.fuse.handlers import Handlers
from sandbox.vfs.fuse.request import REGULAR
from sandbox.vfs.provider import FileInfo, failure

if TYPE_CHECKING:
    from sandbox.vfs.fuse.request import FuseRequest


class AttributeHandlers(Handlers):
    """GETATTR, SETATTR, STATFS and the extended attributes."""

    def getattr(self, request: FuseRequest) -> bytes:
        flags, _, number = structs.GETATTR_IN.unpack_from(request.body)
        node = self.nodes[request.node]
        handle = self.tree.handles[number][1] if flags & structs.GETATTR_FH and number in self.tree.handles else None
        return self.tree.attributes(node, self.tree.info(node, handle))

    def setattr(self, request: FuseRequest) -> bytes:
        number, changes, strip = request.changes()
        node = self.nodes[request.node]
        handle = self.tree.handles[number][1] if number in self.tree.handles else None
        if not node.places and not node.handles and set(changes) <= {"atime_ns", "mtime_ns"} and node.kind == REGULAR:
            # The kernel writes back the times of a file that nobody can reach any more; refusing would be an error.
            return self.tree.attributes(node, FileInfo(mode=node.kind, nlink=0))
        if changes:
            self.tree.change(node, handle, changes)
        if strip:
            self.tree.strip(node, handle)
        return self.tree.attributes(node, self.tree.info(node, handle))

    def statfs(self, request: FuseRequest) -> bytes:
        space = self.provider.statfs()
        total, free = space.total // 4096, space.free // 4096
        return structs.STATFS_OUT.pack(total, free, free, space.files, space.files_free, 4096, 255, 4096, 0)

    def getxattr(self, request: FuseRequest) -> bytes:
        self._need_xattrs()
        name = request.names(structs.XATTR_IN.size)[0]
        return self._sized(request, self.provider.getxattr(self.path(request), name))

    def listxattr(self, request: FuseRequest) -> bytes:
        self._need_xattrs()
        names = self.provider.listxattr(self.path(request))
        return self._sized(request, b"".join(os.fsencode(name) + b"\0" for name in names))

    def setxattr(self, request: FuseRequest) -> bytes:
        self._need_xattrs()
        size, flags = structs.XATTR_IN.unpack_from(request.body)
        name, _, value = bytes(request.body[structs.XATTR_IN.size :]).partition(b"\0")
        self.provider.setxattr(self.path(request), os.fsdecode(name), value[:size], flags)
        return b""

    def removexattr(self, request: FuseRequest) -> bytes:
        self._need_xattrs()
        self.provider.removexattr(self.path(request), request.names(0)[0])
        return b""

    def _need_xattrs(self) -> None:
        if not self.provider.xattrs:
            raise failure(errno.ENOSYS)  # the kernel does not ask again

    def _sized(self, request: FuseRequest, value: bytes) -> bytes:
        size, _ = structs.XATTR_IN.unpack_from(request.body)
        if size == 0:
            return structs.XATTR_OUT.pack(len(value), 0)
        if len(value) > size:
            raise failure(errno.ERANGE)
        return value
