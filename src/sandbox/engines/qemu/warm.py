"""The system files that a template has in memory: a clone keeps using those that have not changed.

The template's file server left a table of the files that its kernel knows: their numbers and attributes. A clone's
server starts with that table. Its kernel must forget what has changed on the host since, before any tenant runs.
"""

from __future__ import annotations

import os

from sandbox.layout.system import LIBRARIES, SYSTEM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = 1  # the number of `/`
_OF_THE_SYSTEM = frozenset(path.split("/")[1].encode() for path in SYSTEM)


class _Node:
    __slots__ = ("changed", "inode", "name", "parent", "size", "written")

    def __init__(self, record: bytes) -> None:
        _, parent, _, inode, size, written, changed, self.name = record.split(b" ", 7)
        self.parent, self.inode, self.size = int(parent), int(inode), int(size)
        self.written, self.changed = int(written), int(changed)


def stale(table: bytes) -> list[list[object]]:
    """The names to forget, each with the number of its directory. Forgetting a name forgets everything below it.

    With no name, the number is that of a file whose content is to be forgotten: one that is mounted elsewhere, where
    its name plays no part.
    """
    nodes = {int(record.partition(b" ")[0]): _Node(record) for record in table.split(b"\0")[:-1]}
    return list(_forgotten(nodes))


def _forgotten(nodes: dict[int, _Node]) -> Iterator[list[object]]:
    paths = {ROOT: b""}
    of_the_system = {name for name in _OF_THE_SYSTEM if not os.path.islink(b"/" + name)}  # the room makes its own links

    def path(number: int) -> bytes:
        found = paths.get(number)
        if found is None:
            node = nodes[number]
            found = paths[number] = path(node.parent) + b"/" + node.name
        return found

    for number, node in nodes.items():
        place = path(number)
        if place == os.fsencode(LIBRARIES):
            if not _is_same(node, place):
                yield [number, b""]
            continue
        if place.split(b"/", 2)[1] not in of_the_system:
            continue  # it belongs to the room in which the template was made; clones do not use it
        if not _is_same(node, place):
            yield [node.parent, node.name]


def _is_same(node: _Node, path: bytes) -> bool:
    try:
        now = os.lstat(path)
    except OSError:
        return False
    return (now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns) == (
        node.inode,
        node.size,
        node.written,
        node.changed,
    )
