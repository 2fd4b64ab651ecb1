"""Requests about what is open: files and directories, from opening to release."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from sandbox.vfs.fuse import structs
from sandbox.vfs.fuse.allocate import allocate
from sandbox.vfs.fuse.directory import Directory
from sandbox.vfs.fuse.handlers import Handlers
from sandbox.vfs.fuse.request import KIND, REGULAR
from sandbox.vfs.provider import failure

if TYPE_CHECKING:
    from sandbox.vfs.fuse.handlers import Buffer
    from sandbox.vfs.fuse.request import FuseRequest
    from sandbox.vfs.fuse.tree import Tree


class OpenHandlers(Handlers):
    """OPEN to RELEASE, and the same for directories."""

    def __init__(self, tree: Tree, *, writeback: bool) -> None:
        super().__init__(tree)
        self._writeback = writeback

    def open(self, request: FuseRequest) -> bytes:
        self.tree.check_room()
        flags, more = structs.OPEN_IN.unpack_from(request.body)
        node = self.nodes[request.node]
        handle = self.provider.open(self.nodes.path(node), self._meant(flags))
        if more & structs.OPEN_KILL_SUIDGID:
            self.tree.strip(node, handle)
        return self.tree.opened(node, handle)

    def create(self, request: FuseRequest) -> bytes:
        self.tree.check_room()
        flags, mode, _, _ = structs.CREATE_IN.unpack_from(request.body)
        parent, name = self.nodes[request.node], request.names(structs.CREATE_IN.size)[0]
        path = self.nodes.child(parent, name)
        try:
            handle = self.provider.create(path, mode & 0o7777)
            self.own(request, path)
        except FileExistsError:  # created by somebody else since the kernel looked
            if flags & os.O_EXCL:
                raise
            handle = self.provider.open(path, self._meant(flags))
        try:
            info = self.provider.stat(path)
            node = self.nodes.found(parent, name, info.ino, info.mode & KIND or REGULAR)
            return self.tree.packed_entry(node, info) + self.tree.opened(node, handle)
        except BaseException:
            handle.close()
            raise

    def read(self, request: FuseRequest) -> Buffer:
        number, offset, size, _ = structs.READ_IN.unpack_from(request.body)
        data = self.tree.handle(number).read(size, offset)
        if len(data) > size:  # the kernel would refuse the reply, and the reader would wait for ever
            raise failure(errno.EIO)
        return data

    def write(self, request: FuseRequest) -> bytes:
        number, offset, size, flags, _, _, _ = structs.WRITE_IN.unpack_from(request.body)
        handle = self.tree.handle(number)
        written = handle.write(request.body[structs.WRITE_IN.size :], offset)
        if not 0 <= written <= size:
            raise failure(errno.EIO)
        if flags & structs.WRITE_KILL_SUIDGID:
            self.tree.strip(self.tree.handles[number][0], handle)
        return structs.WRITE_OUT.pack(written, 0)

    def fallocate(self, request: FuseRequest) -> bytes:
        number, offset, length, mode, _ = structs.FALLOCATE_IN.unpack_from(request.body)
        handle = self.tree.handle(number)
        allocate(self.tree, self.tree.handles[number][0], handle, mode, offset, length)
        return b""

    def flush(self, request: FuseRequest) -> bytes:
        if not self.provider.flushes:
            raise failure(errno.ENOSYS)  # the kernel does not ask again
        self.tree.handle(structs.RELEASE_IN.unpack_from(request.body)[0]).flush()
        return b""

    def fsync(self, request: FuseRequest) -> bytes:
        self.tree.handle(structs.FSYNC_IN.unpack_from(request.body)[0]).sync()
        return b""

    def release(self, request: FuseRequest) -> bytes:
        self.tree.release(structs.RELEASE_IN.unpack_from(request.body)[0])
        return b""

    # Directories

    def opendir(self, request: FuseRequest) -> bytes:
        self.tree.check_room()
        number = next(self.tree.numbers)
        node = self.nodes[request.node]
        self.tree.directories[number] = Directory(node, lambda: self.provider.readdir(self.nodes.path(node)))
        return structs.OPEN_OUT.pack(number, 0, 0)

    def readdir(self, request: FuseRequest) -> bytes:
        number, offset, size, _ = structs.READ_IN.unpack_from(request.body)
        return self.tree.directories[number].read(offset, size)

    def readdirplus(self, request: FuseRequest) -> bytes:
        number, offset, size, _ = structs.READ_IN.unpack_from(request.body)
        directory = self.tree.directories[number]
        return directory.read(offset, size, lambda name, info: self.tree.found(directory.node, name, info))

    def releasedir(self, request: FuseRequest) -> bytes:
        self.tree.release(structs.RELEASE_IN.unpack_from(request.body)[0])
        return b""

    def fsyncdir(self, request: FuseRequest) -> bytes:
        return b""

    def _meant(self, flags: int) -> int:
        """The flags for the provider. The kernel itself positions appended bytes, and with writeback it also reads
        pages that a tenant only writes."""
        flags &= os.O_ACCMODE | os.O_TRUNC
        if self._writeback and flags & os.O_ACCMODE == os.O_WRONLY:
            flags = (flags & ~os.O_ACCMODE) | os.O_RDWR
        return flags
