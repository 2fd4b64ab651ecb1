"""Handles the kernel's requests: each operation calls the provider.

Rule: whatever a provider returns or raises, the kernel gets either a well-formed reply or an errno. A provider may be
wrong about its own files, but it must not be able to hang the mount.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from sandbox.vfs.fuse import structs
from sandbox.vfs.fuse.attribute_handlers import AttributeHandlers
from sandbox.vfs.fuse.name_handlers import NameHandlers
from sandbox.vfs.fuse.open_handlers import OpenHandlers
from sandbox.vfs.fuse.structs import FuseOp, Init
from sandbox.vfs.fuse.tree import Tree
from sandbox.vfs.provider import WRITING, failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.vfs.fuse.handlers import Buffer
    from sandbox.vfs.fuse.request import FuseRequest
    from sandbox.vfs.provider import Provider

    Handler = Callable[[FuseRequest], Buffer]

_CHANGING = frozenset({
    FuseOp.SETATTR, FuseOp.SYMLINK, FuseOp.MKNOD, FuseOp.MKDIR, FuseOp.UNLINK, FuseOp.RMDIR, FuseOp.RENAME,
    FuseOp.RENAME2, FuseOp.LINK, FuseOp.WRITE, FuseOp.CREATE, FuseOp.SETXATTR, FuseOp.REMOVEXATTR, FuseOp.FALLOCATE,
})  # fmt: skip


def _opens_to_write(request: FuseRequest) -> bool:
    return request.op == FuseOp.OPEN and bool(structs.OPEN_IN.unpack_from(request.body)[0] & WRITING)


class Operations:
    """The handlers of one mount, by operation."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.tree = Tree(provider)
        self._writeback = provider.writeback and not provider.readonly
        groups = (
            NameHandlers(self.tree),
            AttributeHandlers(self.tree),
            OpenHandlers(self.tree, writeback=self._writeback),
        )
        self._handlers: dict[int, Handler] = {
            op: handler for op in FuseOp for group in groups if (handler := getattr(group, op.name.lower(), None))
        }
        self._handlers |= {FuseOp.INIT: self._init, FuseOp.DESTROY: lambda request: b""}

    def handle(self, request: FuseRequest) -> Buffer:
        """Handles a request. Raises OSError for the tenant; any other exception is a bug in the provider."""
        handler = self._handlers.get(request.op)
        if handler is None:
            raise failure(errno.ENOSYS)
        if self.provider.readonly and (request.op in _CHANGING or _opens_to_write(request)):
            raise failure(errno.EROFS)
        return handler(request)

    def undelivered(self, op: int, reply: Buffer) -> None:
        """The kernel no longer wants the reply, because the process was killed or the reply came too late. Releases
        what the kernel would have owned."""
        if op in (FuseOp.OPEN, FuseOp.OPENDIR):
            self.tree.release(structs.OPEN_OUT.unpack_from(reply)[0])
        elif op in (FuseOp.LOOKUP, FuseOp.MKNOD, FuseOp.MKDIR, FuseOp.SYMLINK, FuseOp.LINK, FuseOp.CREATE):
            self.tree.nodes.forget(structs.ENTRY.unpack_from(reply)[0], 1)
            if op == FuseOp.CREATE:
                self.tree.release(structs.OPEN_OUT.unpack_from(reply, 128)[0])

    def close(self) -> None:
        """The mount is gone: releases everything."""
        for number in list(self.tree.handles):
            self.tree.release(number)
        self.provider.close()

    def _init(self, request: FuseRequest) -> bytes:
        major, minor, readahead, offered = structs.INIT_IN.unpack_from(request.body)
        if major != structs.MAJOR or minor < structs.MINOR:
            raise failure(errno.EPROTO)
        wanted = (
            Init.ASYNC_READ | Init.ATOMIC_O_TRUNC | Init.BIG_WRITES | Init.DO_READDIRPLUS | Init.READDIRPLUS_AUTO
            | Init.PARALLEL_DIROPS | Init.MAX_PAGES | Init.HANDLE_KILLPRIV_V2
        )  # fmt: skip
        # With writeback the kernel's own size and mtime count; otherwise it checks whether ours changed.
        wanted |= Init.WRITEBACK_CACHE if self._writeback else Init.AUTO_INVAL_DATA
        if self.provider.keep_cache and self.provider.cache_seconds:
            wanted |= Init.CACHE_SYMLINKS
        return structs.INIT_OUT.pack(
            structs.MAJOR,
            structs.MINOR,
            readahead,
            wanted & offered,
            64,
            48,
            structs.MAX_WRITE,
            1,
            structs.MAX_PAGES,
            0,
            0,
        )
