"""Questions to the owner, and answers."""

from __future__ import annotations

from typing import Any

from litestar import get, post

from sandbox.errors import NotFound, SandboxError
from sandbox.server.guard import require
from sandbox.server.reach import Reached
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.server.shapes import Answer, Done


@get("/v1/asks", opt={"verb": "read"})
async def everywhere(server: Server, access: Access) -> dict[str, Any]:
    """The pending questions of every running sandbox that the token reaches."""
    return {"asks": [ask for _, ask in await server.run(lambda: waiting(server, access))]}


@get("/v1/sandboxes/{id:str}/asks", opt={"verb": "read"})
async def of_one(server: Server, reached: Reached) -> dict[str, Any]:
    """The pending questions of one sandbox, oldest first."""
    return await server.run(lambda: {"asks": [dict(one) for one in reached.sandbox.asks()]})


@post("/v1/asks/{number:int}", opt={"verb": "answer"}, status_code=200)
async def answer(server: Server, access: Access, number: int, data: Answer) -> Done:
    """Answers a question of any sandbox."""
    if data.answer == "always":
        require(access, "host")  # it changes the owner's own configuration

    def reply() -> None:
        for reached, ask in waiting(server, access):
            if ask["id"] == number:
                sandbox, by = reached.sandbox, f"HTTP ({access.name})"
                sandbox._answer(number, data.answer, by)
                return
        raise NotFound("no question {id} is waiting: it was answered, or it timed out", id=number)

    await server.run(reply)
    return Done()


def waiting(server: Server, access: Access) -> list[tuple[Reached, dict[str, Any]]]:
    """Every pending question, with the sandbox that asks it."""
    found: list[tuple[Reached, dict[str, Any]]] = []
    for entry in server.sandboxes.list():
        if not entry.running:
            continue
        try:
            reached = server.reach.get(entry.id, access)
            found += [(reached, dict(one)) for one in reached.sandbox.asks()]
        except (SandboxError, OSError):
            continue  # it has just ended, is not ready yet, or the token does not reach it
    return found


ROUTES = [everywhere, of_one, answer]
