"""How a project reaches an agent: the client asks which content is missing, sends it, and has the project made."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, post, put

from sandbox.cluster.blobs import Blobs
from sandbox.cluster.manifest import Entry
from sandbox.server.server import Server
from sandbox.server.shapes import Done

LARGEST = 2**28  # bytes of one file
LIST = 2**28  # bytes of a list of them


class Digests(msgspec.Struct, forbid_unknown_fields=True):
    """A list of contents."""

    digests: list[str]


class Tree(msgspec.Struct, forbid_unknown_fields=True):
    """A project."""

    entries: list[Entry]


def routes(blobs: Blobs) -> list[Any]:
    """The routes of one agent."""

    @post("/v1/cluster/missing", opt={"verb": "create"}, status_code=200, request_max_body_size=LIST)
    async def missing(server: Server, data: Digests) -> Digests:
        """Which of these contents are not here."""
        return Digests(await server.run(lambda: blobs.missing(data.digests)))

    @put("/v1/cluster/blobs/{digest:str}", opt={"verb": "create"}, status_code=200, request_max_body_size=LARGEST)
    async def add(request: Request[Any, Any, Any], server: Server, digest: str) -> Done:
        """Takes one content."""
        content = await request.body()
        await server.run(lambda: blobs.add(digest, content))
        return Done()

    @post("/v1/cluster/projects", opt={"verb": "create"}, status_code=201, request_max_body_size=LIST)
    async def build(server: Server, data: Tree) -> dict[str, str]:
        """Makes a project of contents that are here; it is removed with its sandbox."""
        root = await server.run(lambda: server.workspace("project"))
        await server.run(lambda: blobs.build(root, data.entries))
        return {"root": root}

    return [missing, add, build]
