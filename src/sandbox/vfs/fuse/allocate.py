"""fallocate(2), with what every provider can do: set a file's size, and write zeros."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from sandbox.vfs.provider import failure

if TYPE_CHECKING:
    from sandbox.vfs.fuse.nodes import Node
    from sandbox.vfs.fuse.tree import Tree
    from sandbox.vfs.provider import Handle

KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
# A provider cannot promise to reserve space without a visible change, so KEEP_SIZE alone is not supported.
MODES = (0, KEEP_SIZE | PUNCH_HOLE, ZERO_RANGE, KEEP_SIZE | ZERO_RANGE)
_ZEROS = memoryview(bytes(1 << 20))


def allocate(tree: Tree, node: Node, handle: Handle, mode: int, offset: int, length: int) -> None:
    """Does what fallocate(2) asks. Raises OSError: EOPNOTSUPP for an unsupported mode, and what the provider raises."""
    if mode not in MODES:
        raise failure(errno.EOPNOTSUPP)
    size, end = tree.info(node, handle).size, offset + length
    if mode & (PUNCH_HOLE | ZERO_RANGE):
        _clear(handle, offset, min(size, end))
    if not mode & KEEP_SIZE and size < end:
        tree.change(node, handle, {"size": end})


def _clear(handle: Handle, offset: int, end: int) -> None:
    while offset < end:
        written = handle.write(_ZEROS[: end - offset], offset)
        if written <= 0:
            raise failure(errno.EIO)
        offset += written
