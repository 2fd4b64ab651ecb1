"""What each request of the kernel does to the provider.

Rule: whatever a provider returns or raises, the kernel gets either a well-formed answer or an errno. A provider may
be wrong about its own files; it must not be able to wedge the mount.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from sandbox.vfs.fuse import structs
from sandbox.vfs.fuse.allocate import allocate
from sandbox.vfs.fuse.directory import Directory
from sandbox.vfs.fuse.request import KIND, REGULAR, Request
from sandbox.vfs.fuse.structs import Init, Op
from sandbox.vfs.fuse.tree import Tree
from sandbox.vfs.provider import PATH_MAX, FileInfo, failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.vfs.provider import Provider

    Buffer = bytes | bytearray | memoryview
    Handler = Callable[[Request], Buffer]

RENAME_NOREPLACE = 1

_CHANGING = frozenset({
    Op.SETATTR, Op.SYMLINK, Op.MKNOD, Op.MKDIR, Op.UNLINK, Op.RMDIR, Op.RENAME, Op.RENAME2, Op.LINK, Op.WRITE,
    Op.CREATE, Op.SETXATTR, Op.REMOVEXATTR, Op.FALLOCATE,
})  # fmt: skip


class Operations:
    """The handlers of one mount, by operation."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.tree = Tree(provider)
        self.nodes = self.tree.nodes
        self._writeback = provider.writeback and not provider.readonly
        self._handlers: dict[int, Handler] = {
            op: getattr(self, f"_{op.name.lower()}") for op in Op if hasattr(self, f"_{op.name.lower()}")
        }

    def handle(self, request: Request) -> Buffer:
        """Does what is asked. Raises OSError for the tenant; anything else is the provider's fault."""
        handler = self._handlers.get(request.op)
        if handler is None:
            raise failure(errno.ENOSYS)
        if self.provider.readonly and request.op in _CHANGING:
            raise failure(errno.EROFS)
        return handler(request)

    def undelivered(self, op: int, reply: Buffer) -> None:
        """The kernel no longer wanted the answer (its process was killed, or it came too late): take back what it
        would have owned."""
        if op in (Op.OPEN, Op.OPENDIR):
            self.tree.release(structs.OPEN_OUT.unpack_from(reply)[0])
        elif op in (Op.LOOKUP, Op.MKNOD, Op.MKDIR, Op.SYMLINK, Op.LINK, Op.CREATE):
            self.nodes.forget(structs.ENTRY.unpack_from(reply)[0], 1)
            if op == Op.CREATE:
                self.tree.release(structs.OPEN_OUT.unpack_from(reply, 128)[0])

    def close(self) -> None:
        """The mount is gone: give everything back."""
        for number in list(self.tree.handles):
            self.tree.release(number)
        self.provider.close()

    # Names

    def _init(self, request: Request) -> bytes:
        major, minor, readahead, offered = structs.INIT_IN.unpack_from(request.body)
        if major != structs.MAJOR or minor < structs.MINOR:
            raise failure(errno.EPROTO)
        wanted = (
            Init.ASYNC_READ | Init.ATOMIC_O_TRUNC | Init.BIG_WRITES | Init.DO_READDIRPLUS | Init.READDIRPLUS_AUTO
            | Init.PARALLEL_DIROPS | Init.MAX_PAGES | Init.HANDLE_KILLPRIV_V2
        )  # fmt: skip
        # With writeback the kernel's own idea of size and mtime counts; otherwise it looks whether ours changed.
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

    def _lookup(self, request: Request) -> bytes:
        parent, name = self.nodes[request.node], request.names(0)[0]
        try:
            info = self.provider.stat(self.nodes.child(parent, name))
        except FileNotFoundError:
            self.nodes.gone(parent, name)
            if self.tree.lifetime == (0, 0):
                raise
            return self.tree.no_entry
        return self.tree.entry(parent, name, info)

    def _forget(self, request: Request) -> bytes:
        self.nodes.forget(request.node, structs.FORGET_IN.unpack_from(request.body)[0])
        return b""

    def _batch_forget(self, request: Request) -> bytes:
        number = structs.BATCH_FORGET_IN.unpack_from(request.body)[0]
        for at in range(number):
            self.nodes.forget(*structs.FORGET_ONE.unpack_from(request.body, 8 + at * structs.FORGET_ONE.size))
        return b""

    def _mkdir(self, request: Request) -> bytes:
        mode, _ = structs.MKDIR_IN.unpack_from(request.body)
        return self._made(request, structs.MKDIR_IN.size, lambda path: self.provider.mkdir(path, mode & 0o7777))

    def _mknod(self, request: Request) -> bytes:
        mode, _, _, _ = structs.MKNOD_IN.unpack_from(request.body)
        if mode & KIND == REGULAR:
            return self._made(request, structs.MKNOD_IN.size, lambda path: self.provider.create(path, mode).close())
        return self._made(request, structs.MKNOD_IN.size, lambda path: self.provider.mknod(path, mode))

    def _symlink(self, request: Request) -> bytes:
        name, target = request.names(0)
        parent = self.nodes[request.node]
        path = self.nodes.child(parent, name)
        self.provider.symlink(target, path)
        self._own(request, path)
        return self.tree.entry(parent, name, self.provider.stat(path))

    def _link(self, request: Request) -> bytes:
        old = self.nodes[structs.LINK_IN.unpack_from(request.body)[0]]
        parent, name = self.nodes[request.node], request.names(structs.LINK_IN.size)[0]
        path = self.nodes.child(parent, name)
        self.provider.link(self.nodes.path(old), path)
        return self.tree.entry(parent, name, self.provider.stat(path))

    def _unlink(self, request: Request) -> bytes:
        parent, name = self.nodes[request.node], request.names(0)[0]
        self.provider.remove(self.nodes.child(parent, name))
        self.nodes.gone(parent, name)
        return b""

    _rmdir = _unlink

    def _rename(self, request: Request) -> bytes:
        return self._moved(request, structs.RENAME_IN.unpack_from(request.body)[0], 0, structs.RENAME_IN.size)

    def _rename2(self, request: Request) -> bytes:
        target, flags, _ = structs.RENAME2_IN.unpack_from(request.body)
        return self._moved(request, target, flags, structs.RENAME2_IN.size)

    def _moved(self, request: Request, target: int, flags: int, skip: int) -> bytes:
        if flags & ~RENAME_NOREPLACE:  # the kernel has looked itself whether there is something to replace
            raise failure(errno.EINVAL)
        old_name, new_name = request.names(skip)
        parent, new_parent = self.nodes[request.node], self.nodes[target]
        self.provider.rename(self.nodes.child(parent, old_name), self.nodes.child(new_parent, new_name))
        self.nodes.moved(parent, old_name, new_parent, new_name)
        return b""

    def _readlink(self, request: Request) -> bytes:
        target = os.fsencode(self.provider.readlink(self.nodes.path(self.nodes[request.node])))
        if not 0 < len(target) < PATH_MAX or b"\0" in target:
            raise failure(errno.EIO)
        return target

    # Attributes

    def _getattr(self, request: Request) -> bytes:
        flags, _, number = structs.GETATTR_IN.unpack_from(request.body)
        node = self.nodes[request.node]
        handle = self.tree.handles[number][1] if flags & structs.GETATTR_FH and number in self.tree.handles else None
        return self.tree.attributes(node, self.tree.info(node, handle))

    def _setattr(self, request: Request) -> bytes:
        number, changes, strip = request.changes()
        node = self.nodes[request.node]
        handle = self.tree.handles[number][1] if number in self.tree.handles else None
        if not node.places and not node.handles and set(changes) <= {"atime_ns", "mtime_ns"} and node.kind == REGULAR:
            # The kernel writes back the times of a file that nobody can reach any more, and would call it an error.
            return self.tree.attributes(node, FileInfo(mode=node.kind, nlink=0))
        if changes:
            self.tree.change(node, handle, changes)
        if strip:
            self.tree.strip(node, handle)
        return self.tree.attributes(node, self.tree.info(node, handle))

    def _statfs(self, request: Request) -> bytes:
        space = self.provider.statfs()
        total, free = space.total // 4096, space.free // 4096
        return structs.STATFS_OUT.pack(total, free, free, space.files, space.files_free, 4096, 255, 4096, 0)

    def _getxattr(self, request: Request) -> bytes:
        self._need_xattrs()
        name = request.names(structs.XATTR_IN.size)[0]
        return self._sized(request, self.provider.getxattr(self._path(request), name))

    def _listxattr(self, request: Request) -> bytes:
        self._need_xattrs()
        names = self.provider.listxattr(self._path(request))
        return self._sized(request, b"".join(os.fsencode(name) + b"\0" for name in names))

    def _setxattr(self, request: Request) -> bytes:
        self._need_xattrs()
        size, flags = structs.XATTR_IN.unpack_from(request.body)
        name, _, value = bytes(request.body[structs.XATTR_IN.size :]).partition(b"\0")
        self.provider.setxattr(self._path(request), os.fsdecode(name), value[:size], flags)
        return b""

    def _removexattr(self, request: Request) -> bytes:
        self._need_xattrs()
        self.provider.removexattr(self._path(request), request.names(0)[0])
        return b""

    # Files

    def _open(self, request: Request) -> bytes:
        self.tree.check_room()
        flags, more = structs.OPEN_IN.unpack_from(request.body)
        node = self.nodes[request.node]
        handle = self.provider.open(self.nodes.path(node), self._meant(flags))
        if more & structs.OPEN_KILL_SUIDGID:
            self.tree.strip(node, handle)
        return self.tree.opened(node, handle)

    def _create(self, request: Request) -> bytes:
        self.tree.check_room()
        flags, mode, _, _ = structs.CREATE_IN.unpack_from(request.body)
        parent, name = self.nodes[request.node], request.names(structs.CREATE_IN.size)[0]
        path = self.nodes.child(parent, name)
        try:
            handle = self.provider.create(path, mode & 0o7777)
            self._own(request, path)
        except FileExistsError:  # somebody else made it since the kernel looked
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

    def _read(self, request: Request) -> bytes | bytearray | memoryview:
        number, offset, size, _ = structs.READ_IN.unpack_from(request.body)
        data = self.tree.handle(number).read(size, offset)
        if len(data) > size:  # the kernel would refuse the answer, and its reader would wait for ever
            raise failure(errno.EIO)
        return data

    def _write(self, request: Request) -> bytes:
        number, offset, size, flags, _, _, _ = structs.WRITE_IN.unpack_from(request.body)
        handle = self.tree.handle(number)
        written = handle.write(request.body[structs.WRITE_IN.size :], offset)
        if not 0 <= written <= size:
            raise failure(errno.EIO)
        if flags & structs.WRITE_KILL_SUIDGID:
            self.tree.strip(self.tree.handles[number][0], handle)
        return structs.WRITE_OUT.pack(written, 0)

    def _fallocate(self, request: Request) -> bytes:
        number, offset, length, mode, _ = structs.FALLOCATE_IN.unpack_from(request.body)
        handle = self.tree.handle(number)
        allocate(self.tree, self.tree.handles[number][0], handle, mode, offset, length)
        return b""

    def _flush(self, request: Request) -> bytes:
        if not self.provider.flushes:
            raise failure(errno.ENOSYS)  # the kernel does not ask again
        self.tree.handle(structs.RELEASE_IN.unpack_from(request.body)[0]).flush()
        return b""

    def _fsync(self, request: Request) -> bytes:
        self.tree.handle(structs.FSYNC_IN.unpack_from(request.body)[0]).sync()
        return b""

    def _release(self, request: Request) -> bytes:
        self.tree.release(structs.RELEASE_IN.unpack_from(request.body)[0])
        return b""

    # Directories

    def _opendir(self, request: Request) -> bytes:
        self.tree.check_room()
        number = next(self.tree.numbers)
        node = self.nodes[request.node]
        self.tree.directories[number] = Directory(node, lambda: self.provider.readdir(self.nodes.path(node)))
        return structs.OPEN_OUT.pack(number, 0, 0)

    def _readdir(self, request: Request) -> bytes:
        number, offset, size, _ = structs.READ_IN.unpack_from(request.body)
        return self.tree.directories[number].read(offset, size)

    def _readdirplus(self, request: Request) -> bytes:
        number, offset, size, _ = structs.READ_IN.unpack_from(request.body)
        directory = self.tree.directories[number]
        return directory.read(offset, size, lambda name, info: self.tree.found(directory.node, name, info))

    def _releasedir(self, request: Request) -> bytes:
        self.tree.release(structs.RELEASE_IN.unpack_from(request.body)[0])
        return b""

    def _fsyncdir(self, request: Request) -> bytes:
        return b""

    def _destroy(self, request: Request) -> bytes:
        return b""

    # Parts of the above

    def _path(self, request: Request) -> str:
        return self.nodes.path(self.nodes[request.node])

    def _made(self, request: Request, skip: int, make: Callable[[str], None]) -> bytes:
        parent, name = self.nodes[request.node], request.names(skip)[0]
        path = self.nodes.child(parent, name)
        make(path)
        self._own(request, path)
        return self.tree.entry(parent, name, self.provider.stat(path))

    def _own(self, request: Request, path: str) -> None:
        """In a sandbox every tenant is user 0 of the mount and owns what it makes. Elsewhere (a mount for several
        users) the maker is told to a provider that cares."""
        if request.uid or request.gid:
            try:
                self.provider.setattr(path, uid=request.uid, gid=request.gid)
            except OSError:
                pass

    def _meant(self, flags: int) -> int:
        """The kernel places appended bytes itself; with writeback it also reads around what a tenant only writes."""
        flags &= os.O_ACCMODE | os.O_TRUNC
        if self._writeback and flags & os.O_ACCMODE == os.O_WRONLY:
            flags = (flags & ~os.O_ACCMODE) | os.O_RDWR
        return flags

    def _need_xattrs(self) -> None:
        if not self.provider.xattrs:
            raise failure(errno.ENOSYS)  # the kernel does not ask again

    def _sized(self, request: Request, value: bytes) -> bytes:
        size, _ = structs.XATTR_IN.unpack_from(request.body)
        if size == 0:
            return structs.XATTR_OUT.pack(len(value), 0)
        if len(value) > size:
            raise failure(errno.ERANGE)
        return value
