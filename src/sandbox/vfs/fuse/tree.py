"""One mount's tree as the kernel knows it: the numbers of nodes and open files, and the replies about them."""

from __future__ import annotations

import errno
from itertools import count
from typing import TYPE_CHECKING

from sandbox.vfs.fuse import structs
from sandbox.vfs.fuse.nodes import Node, NodeTable
from sandbox.vfs.fuse.request import KIND, REGULAR, SET_ID, packed
from sandbox.vfs.provider import FileInfo, failure

if TYPE_CHECKING:
    from sandbox.vfs.fuse.directory import Directory
    from sandbox.vfs.provider import Changes, Handle, Provider

MOST_OPEN = 65536


class Tree:
    """What `provider` has shown to the kernel so far."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.nodes = NodeTable()
        self.handles: dict[int, tuple[Node, Handle]] = {}
        self.directories: dict[int, Directory] = {}
        self.numbers = count(1)
        seconds = max(0.0, provider.cache_seconds)
        self.lifetime = int(seconds), int(seconds % 1 * 1e9)
        self.no_entry = structs.ENTRY.pack(0, 0, *(self.lifetime[0],) * 2, *(self.lifetime[1],) * 2) + bytes(88)
        self._open_flags = structs.OPEN_KEEP_CACHE if provider.keep_cache else 0

    # What is open

    def check_room(self) -> None:
        """Open files cost memory in this process, where the tenants' limits do not apply. Raises OSError."""
        if len(self.handles) + len(self.directories) >= MOST_OPEN:
            raise failure(errno.ENFILE)

    def opened(self, node: Node, handle: Handle) -> bytes:
        number = next(self.numbers)
        self.handles[number] = node, handle
        node.handles.append(handle)
        return structs.OPEN_OUT.pack(number, self._open_flags, 0)

    def handle(self, number: int) -> Handle:
        try:
            return self.handles[number][1]
        except KeyError:
            raise failure(errno.EBADF) from None

    def release(self, number: int) -> None:
        if (directory := self.directories.pop(number, None)) is not None:
            directory.close()
        elif (opened := self.handles.pop(number, None)) is not None:
            node, handle = opened
            node.handles.remove(handle)
            handle.close()

    # Attributes and entries

    def info(self, node: Node, handle: Handle | None) -> FileInfo:
        """A file's attributes: from its own handle, by name, or from any handle once the name is gone."""
        for candidate in (handle, None, *node.handles):
            try:
                return candidate.stat() if candidate is not None else self.provider.stat(self.nodes.path(node))
            except OSError as problem:
                unknown = problem.errno in (errno.ENOSYS, errno.ENOENT)
                if not unknown:
                    raise
        raise failure(errno.ENOENT)

    def change(self, node: Node, handle: Handle | None, changes: Changes) -> None:
        for candidate in (handle, None, *node.handles):
            try:
                if candidate is not None:
                    return candidate.setattr(**changes)
                return self.provider.setattr(self.nodes.path(node), **changes)
            except OSError as problem:
                unknown = problem.errno in (errno.ENOSYS, errno.ENOENT)
                if not unknown:
                    raise
        raise failure(errno.ENOENT)

    def strip(self, node: Node, handle: Handle | None) -> None:
        """Clears setuid and setgid, as a write without privileges must. The kernel leaves this to us; otherwise it
        would ask for an attribute before each write."""
        if node.set_id:
            self.change(node, handle, {"mode": self.info(node, handle).mode & 0o7777 & ~SET_ID})
            node.set_id = False

    def entry(self, parent: Node, name: str, info: FileInfo) -> bytes:
        node = self.nodes.found(parent, name, info.ino, info.mode & KIND or REGULAR)
        return self.packed_entry(node, info)

    def found(self, parent: Node, name: str, info: FileInfo | None) -> bytes:
        """For READDIRPLUS: an entry, or an empty one, which makes the kernel look up the name, when `stat` fails."""
        try:
            return self.entry(parent, name, info or self.provider.stat(self.nodes.child(parent, name)))
        except OSError:
            return bytes(structs.ENTRY.size + structs.ATTR.size)

    def packed_entry(self, node: Node, info: FileInfo) -> bytes:
        seconds, rest = self.lifetime
        try:
            node.set_id = node.kind == REGULAR and bool(info.mode & SET_ID)
            return structs.ENTRY.pack(node.id, 0, seconds, seconds, rest, rest) + packed(node, info)
        except BaseException:
            self.nodes.forget(node.id, 1)
            raise

    def attributes(self, node: Node, info: FileInfo) -> bytes:
        if (info.mode & KIND or REGULAR) != node.kind:
            raise failure(errno.ESTALE)  # another file has its name now: the kernel must look it up again
        node.set_id = node.kind == REGULAR and bool(info.mode & SET_ID)
        return structs.ATTR_OUT.pack(*self.lifetime, 0) + packed(node, info)
