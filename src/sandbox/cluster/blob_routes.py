"""How a project reaches an agent: the client asks which content is missing, sends it, and has the project made."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get, post, put

from sandbox.cluster.blobs import BlobStore
from sandbox.cluster.leases import Leases
from sandbox.cluster.manifest import ManifestEntry
from sandbox.server.scopes import LEASE, Access
from sandbox.server.server import Server
from sandbox.server.shapes import Done

LARGEST = 2**28  # bytes of one file
OPEN = {"verb": "create", "surface": LEASE}
LIST = 2**28  # bytes of a list of them


class Digests(msgspec.Struct, forbid_unknown_fields=True):
    """A list of contents."""

    digests: list[str]


class Tree(msgspec.Struct, forbid_unknown_fields=True):
    """A project."""

    entries: list[ManifestEntry]


def routes(blobs: BlobStore, leases: Leases) -> list[Any]:
    """The routes of one agent."""

    @get("/v1/cluster/alive", opt={"public": True, "surface": LEASE})
    async def alive() -> Done:
        """Answers while the agent does. Only who has a certificate gets this far."""
        return Done()

    @post("/v1/cluster/missing", opt=OPEN, status_code=200, request_max_body_size=LIST)
    async def missing(server: Server, access: Access, data: Digests) -> Digests:
        """Which of these contents are not here."""
        leases.use(access.token)
        return Digests(await server.run(lambda: blobs.missing(data.digests)))

    @put("/v1/cluster/blobs/{digest:str}", opt=OPEN, status_code=200, request_max_body_size=LARGEST)
    async def add(request: Request[Any, Any, Any], server: Server, access: Access, digest: str) -> Done:
        """Takes one content."""
        leases.use(access.token)
        content = await request.body()
        await server.run(lambda: blobs.add(digest, content))
        return Done()

    @post("/v1/cluster/projects", opt=OPEN, status_code=201, request_max_body_size=LIST)
    async def build(server: Server, access: Access, data: Tree) -> dict[str, str]:
        """Makes a project of contents that are here; it is removed with its sandbox."""
        root = await server.run(lambda: server.workspace("project"))
        leases.use(access.token, root)
        await server.run(lambda: blobs.build(root, data.entries))
        return {"root": root}

    return [alive, missing, add, build]
