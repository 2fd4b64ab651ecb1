"""Requests about names: looking up, making, linking, renaming and removing."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from sandbox.vfs.fuse import structs
from sandbox.vfs.fuse.handlers import Handlers
from sandbox.vfs.fuse.request import KIND, REGULAR
from sandbox.vfs.provider import PATH_MAX, failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.vfs.fuse.request import FuseRequest

RENAME_NOREPLACE = 1


class NameHandlers(Handlers):
    """LOOKUP to READLINK."""

    def lookup(self, request: FuseRequest) -> bytes:
        parent, name = self.nodes[request.node], request.names(0)[0]
        try:
            info = self.provider.stat(self.nodes.child(parent, name))
        except FileNotFoundError:
            self.nodes.gone(parent, name)
            if self.tree.lifetime == (0, 0):
                raise
            return self.tree.no_entry
        return self.tree.entry(parent, name, info)

    def forget(self, request: FuseRequest) -> bytes:
        self.nodes.forget(request.node, structs.FORGET_IN.unpack_from(request.body)[0])
        return b""

    def batch_forget(self, request: FuseRequest) -> bytes:
        number = structs.BATCH_FORGET_IN.unpack_from(request.body)[0]
        for at in range(number):
            self.nodes.forget(*structs.FORGET_ONE.unpack_from(request.body, 8 + at * structs.FORGET_ONE.size))
        return b""

    def mkdir(self, request: FuseRequest) -> bytes:
        mode, _ = structs.MKDIR_IN.unpack_from(request.body)
        return self._made(request, structs.MKDIR_IN.size, lambda path: self.provider.mkdir(path, mode & 0o7777))

    def mknod(self, request: FuseRequest) -> bytes:
        mode, _, _, _ = structs.MKNOD_IN.unpack_from(request.body)
        if mode & KIND == REGULAR:
            return self._made(request, structs.MKNOD_IN.size, lambda path: self.provider.create(path, mode).close())
        return self._made(request, structs.MKNOD_IN.size, lambda path: self.provider.mknod(path, mode))

    def symlink(self, request: FuseRequest) -> bytes:
        name, target = request.names(0)
        parent = self.nodes[request.node]
        path = self.nodes.child(parent, name)
        self.provider.symlink(target, path)
        self.own(request, path)
        return self.tree.entry(parent, name, self.provider.stat(path))

    def link(self, request: FuseRequest) -> bytes:
        old = self.nodes[structs.LINK_IN.unpack_from(request.body)[0]]
        parent, name = self.nodes[request.node], request.names(structs.LINK_IN.size)[0]
        path = self.nodes.child(parent, name)
        self.provider.link(self.nodes.path(old), path)
        return self.tree.entry(parent, name, self.provider.stat(path))

    def unlink(self, request: FuseRequest) -> bytes:
        parent, name = self.nodes[request.node], request.names(0)[0]
        self.provider.remove(self.nodes.child(parent, name))
        self.nodes.gone(parent, name)
        return b""

    rmdir = unlink

    def rename(self, request: FuseRequest) -> bytes:
        return self._moved(request, structs.RENAME_IN.unpack_from(request.body)[0], 0, structs.RENAME_IN.size)

    def rename2(self, request: FuseRequest) -> bytes:
        target, flags, _ = structs.RENAME2_IN.unpack_from(request.body)
        return self._moved(request, target, flags, structs.RENAME2_IN.size)

    def _moved(self, request: FuseRequest, target: int, flags: int, skip: int) -> bytes:
        if flags & ~RENAME_NOREPLACE:  # the kernel itself checks whether there is something to replace
            raise failure(errno.EINVAL)
        old_name, new_name = request.names(skip)
        parent, new_parent = self.nodes[request.node], self.nodes[target]
        self.provider.rename(self.nodes.child(parent, old_name), self.nodes.child(new_parent, new_name))
        self.nodes.moved(parent, old_name, new_parent, new_name)
        return b""

    def readlink(self, request: FuseRequest) -> bytes:
        target = os.fsencode(self.provider.readlink(self.nodes.path(self.nodes[request.node])))
        if not 0 < len(target) < PATH_MAX or b"\0" in target:
            raise failure(errno.EIO)
        return target

    def _made(self, request: FuseRequest, skip: int, make: Callable[[str], None]) -> bytes:
        parent, name = self.nodes[request.node], request.names(skip)[0]
        path = self.nodes.child(parent, name)
        make(path)
        self.own(request, path)
        return self.tree.entry(parent, name, self.provider.stat(path))
