"""The routes of the machine that keeps the records of a cluster: other machines send theirs, and people read them."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response, get, post

from sandbox.audit.following import Following
from sandbox.audit.received import ReceivedRecords
from sandbox.server.server import Server

SURFACE = "records"  # of the tokens that send and read them, which are good for nothing else
OPEN = {"verb": "audit", "surface": SURFACE}
PIECE = 2**20  # bytes of lines that are sent at once
LARGEST = 2 * PIECE + 2**20  # the last line may be a long one


class Reached(msgspec.Struct):
    """How far a record is kept."""

    chain: str
    number: int
    digest: str
    problem: str = ""
    next: str = ""  # where it goes on


def routes(kept: ReceivedRecords) -> list[Any]:
    """The routes of the agent that keeps records. The token of a lease does not have their scope."""

    def reached(chain: str) -> Reached:
        return Reached(chain, *kept.reached(chain), kept.problem(chain), kept.next(chain))

    @get("/v1/cluster/records", opt=OPEN)
    async def listed(server: Server) -> list[Reached]:
        """Every record that is kept here."""
        return await server.run(lambda: [reached(one) for one in kept.chains()])

    @get("/v1/cluster/records/{chain:str}", opt=OPEN)
    async def number(server: Server, chain: str) -> Reached:
        """How far one is kept."""
        return await server.run(lambda: reached(chain))

    @post("/v1/cluster/records/{chain:str}", opt=OPEN, status_code=200, request_max_body_size=LARGEST)
    async def take(request: Request[Any, Any, Any], server: Server, chain: str) -> Reached:
        """Takes the lines that follow."""
        lines = await request.body()
        await server.run(lambda: kept.take(chain, lines))
        return await server.run(lambda: reached(chain))

    @post("/v1/cluster/records/{chain:str}/replaced", opt=OPEN, status_code=200)
    async def replaced(server: Server, chain: str) -> Reached:
        """The node no longer has what is kept: its record goes on under another name."""
        name = await server.run(lambda: kept.replace(chain))
        return await server.run(lambda: reached(name))

    @get("/v1/cluster/records/{chain:str}/lines", opt=OPEN, media_type="application/x-ndjson")
    async def lines(server: Server, chain: str, after: int = 0) -> Response[bytes]:
        """The lines after a number, about a megabyte at a time."""
        following = Following(kept.directory(chain), after)
        try:
            found = await server.run(lambda: following.lines(PIECE))
        finally:
            following.close()
        return Response(found, media_type="application/x-ndjson")

    return [listed, number, take, replaced, lines]
