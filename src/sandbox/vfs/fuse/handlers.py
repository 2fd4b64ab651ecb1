"""What the handlers of every kind of request share."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.vfs.fuse.request import FuseRequest
    from sandbox.vfs.fuse.tree import Tree

    Buffer = bytes | bytearray | memoryview


class Handlers:
    """Methods named after the kernel's operations: each takes a request and returns the answer, or raises OSError."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.provider = tree.provider
        self.nodes = tree.nodes

    def path(self, request: FuseRequest) -> str:
        """The path of the file that the request is about."""
        return self.nodes.path(self.nodes[request.node])

    def own(self, request: FuseRequest, path: str) -> None:
        """Makes the requesting user the owner of a new file. In a sandbox every tenant is user 0 of the mount and owns
        what it makes; in a mount for several users, a provider that supports owners gets the owner."""
        if request.uid or request.gid:
            with suppress(OSError):
                self.provider.setattr(path, uid=request.uid, gid=request.gid)
