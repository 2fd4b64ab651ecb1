"""The nodes that the kernel knows: each file's number, from the first lookup until the kernel forgets it.

The kernel uses numbers, providers use paths. A node holds the places (parent and name) where its file was last seen. A
rename changes the place, and a path is built when it is needed.
"""

from __future__ import annotations

import errno
from threading import Lock
from typing import TYPE_CHECKING

from sandbox.vfs.fuse.structs import ROOT
from sandbox.vfs.provider import PATH_MAX, failure, join

if TYPE_CHECKING:
    from sandbox.vfs.provider import Handle


class Node:
    __slots__ = ("age", "handles", "id", "ino", "kind", "lookups", "path", "places", "set_id")

    def __init__(self, number: int, ino: int, kind: int) -> None:
        self.id = number
        self.ino = ino
        self.kind = kind
        self.lookups = 0
        # In the order they were seen; a dict, because a tenant can give a file any number of names.
        self.places: dict[tuple[Node, str], None] = {}
        # Open handles, which answer for a file that no longer has a name.
        self.handles: list[Handle] = []
        self.path: str | None = None
        self.age = 0
        # Whether it was last seen setuid or setgid; a write clears both.
        self.set_id = False


class NodeTable:
    """Thread-safe table of the nodes the kernel knows."""

    def __init__(self) -> None:
        self.root = Node(ROOT, 0, 0o040000)
        self.root.path = "/"
        self._by_id = {ROOT: self.root}
        self._by_place: dict[tuple[int, str], Node] = {}
        self._by_ino: dict[int, Node] = {}
        self._last = ROOT
        # Counts renames of directories: a path built before the last one is out of date.
        self._age = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._by_id)

    def __getitem__(self, number: int) -> Node:
        try:
            return self._by_id[number]
        except KeyError:
            raise failure(errno.ESTALE) from None

    def path(self, node: Node) -> str:
        """Where the node's file is now. Raises OSError when it no longer has a name."""
        if node is self.root:
            return "/"
        if node.path is not None and node.age == self._age:
            return node.path
        with self._lock:
            return self._path(node)

    def child(self, parent: Node, name: str) -> str:
        path = join(self.path(parent), name)
        if len(path) > PATH_MAX:  # a tenant could descend for ever by relative steps
            raise failure(errno.ENAMETOOLONG)
        return path

    def found(self, parent: Node, name: str, ino: int, kind: int) -> Node:
        """The node of the file that a provider showed at a place. Counts as one more lookup."""
        with self._lock:
            place = (parent.id, name)
            node = self._by_place.get(place)
            if node is None or node.ino != ino or node.kind != kind:
                if node is not None:
                    self._leave(node, parent, name)
                node = self._by_ino.get(ino) if ino else None
                if node is None or node.kind != kind:
                    node = self._new(ino, kind)
                self._by_place[place] = node
                node.places[parent, name] = None
                node.path = None
            node.lookups += 1
            return node

    def gone(self, parent: Node, name: str) -> None:
        """Nothing is at that place any more."""
        with self._lock:
            node = self._by_place.get((parent.id, name))
            if node is not None:
                self._leave(node, parent, name)

    def moved(self, parent: Node, name: str, new_parent: Node, new_name: str) -> None:
        with self._lock:
            replaced = self._by_place.get((new_parent.id, new_name))
            node = self._by_place.get((parent.id, name))
            if replaced is not None and replaced is not node:
                self._leave(replaced, new_parent, new_name)
            if node is None or replaced is node:
                return
            del self._by_place[parent.id, name]
            del node.places[parent, name]
            node.places[new_parent, new_name] = None
            self._by_place[new_parent.id, new_name] = node
            node.path = None
            if node.kind == 0o040000:
                self._age += 1

    def forget(self, number: int, count: int) -> None:
        """The kernel drops `count` of its references."""
        with self._lock:
            node = self._by_id.get(number)
            if node is None or node is self.root:
                return
            node.lookups -= count
            if node.lookups <= 0:
                for parent, name in list(node.places):
                    self._leave(node, parent, name)
                del self._by_id[number]

    # With the lock held.

    def _new(self, ino: int, kind: int) -> Node:
        self._last += 1
        node = self._by_id[self._last] = Node(self._last, ino, kind)
        if ino:
            self._by_ino[ino] = node
        return node

    def _leave(self, node: Node, parent: Node, name: str) -> None:
        del self._by_place[parent.id, name]
        del node.places[parent, name]
        node.path = None
        # A file system may give the number of a file without names to a new file.
        if not node.places and self._by_ino.get(node.ino) is node:
            del self._by_ino[node.ino]

    def _path(self, node: Node) -> str:
        """Not recursive, because tenants decide how deep a tree is."""
        above: list[tuple[Node, str]] = []
        while node is not self.root and (node.path is None or node.age != self._age):
            if not node.places:
                raise failure(errno.ENOENT)
            parent, name = next(reversed(node.places))  # the place seen last
            above.append((node, name))
            node = parent
        path = node.path or "/"
        for below, name in reversed(above):
            path = below.path = join(path, name)
            below.age = self._age
        return path
