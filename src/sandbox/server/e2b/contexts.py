"""The code interpreter: contexts that keep their state, and code that runs in them. Each context is one of our code
sessions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar import Request, delete, get, post
from litestar.response import Stream

from sandbox.errors import CommandError
from sandbox.protocols import Process
from sandbox.rpc import messages as m
from sandbox.server.decoding import decode
from sandbox.server.e2b import messages
from sandbox.server.e2b.execution import Execution
from sandbox.server.e2b.reaching import opt, resolved, there
from sandbox.server.e2b.refusals import E2bRefusal, answer, not_supported
from sandbox.server.e2b.state import MOST_CONTEXTS, MOST_STREAMS, SandboxState
from sandbox.server.reach import Reached
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.server.settings import BODY_LIMIT
from sandbox.sessions.languages import open_session

LANGUAGES = {
    "python": "python",
    "javascript": "node",
    "js": "node",
    "typescript": "typescript",
    "ts": "typescript",
    "bash": "bash",
}
NAMES = {"python": "python", "node": "javascript", "typescript": "typescript", "bash": "bash"}
Asking = Request[Any, Any, Any]
_PLAIN: dict[str, Any] = {"opt": opt("exec"), "include_in_schema": False, "exception_handlers": {Exception: answer}}


class Context:
    """One interpreter in a sandbox. `language` is ours: see `sessions.languages`."""

    def __init__(self, reached: Reached, state: SandboxState, language: str, cwd: str) -> None:
        self.id = os.urandom(16).hex()
        self.language, self.cwd = language, cwd
        self.state = state
        self.count = 0
        self.turn = asyncio.Lock()
        self.prepared = language != "python"  # whether its interpreter has E2B's formatters (`drivers/forms.py`)
        self.session = open_session(_Inside(reached, state, cwd), language)

    def told(self) -> dict[str, str]:
        return {"id": self.id, "language": NAMES[self.language], "cwd": self.cwd}


class _Inside:
    """Starts an interpreter in a context's directory, with the sandbox's variables."""

    def __init__(self, reached: Reached, state: SandboxState, cwd: str) -> None:
        self._reached, self._state, self._cwd = reached, state, cwd

    def spawn(self, command: list[str]) -> Process:
        return self._reached.sandbox.spawn(command, cwd=self._cwd, env={"PWD": self._cwd, **self._state.envs})


def _language(asked: str | None) -> str:
    wanted = (asked or "python").lower()
    if wanted not in LANGUAGES:
        raise not_supported(f"the language {wanted[:40]!r}")
    return LANGUAGES[wanted]


async def _new(server: Server, reached: Reached, language: str, cwd: str | None) -> Context:
    state = server.e2b.of(reached.id)
    state.room(len(state.contexts), MOST_CONTEXTS, "contexts")
    whole = resolved(server, reached, cwd or "")
    found = await server.run(lambda: reached.call("stat", m.OnePath(whole)))
    if found["kind"] != "directory":
        raise E2bRefusal(400, f"{whole} is not a directory")
    context = Context(reached, state, language, whole)
    state.contexts[context.id] = context
    return context


def _known(state: SandboxState, id: str) -> Context:
    context = state.contexts.get(id)
    if context is None:
        raise E2bRefusal(404, f"context {id[:64]} not found")
    return context


async def _default(server: Server, reached: Reached, language: str) -> Context:
    """The context for code that names none."""
    state = server.e2b.of(reached.id)
    context = state.contexts.get(state.default_contexts.get(language, ""))
    if context is None:
        context = await _new(server, reached, language, None)
        first = state.contexts.get(state.default_contexts.setdefault(language, context.id))
        if first is not None and first is not context:  # another request was faster
            del state.contexts[context.id]
            return first
        state.default_contexts[language] = context.id
    return context


async def _defaults(server: Server, reached: Reached) -> None:
    """Makes the two contexts that always exist. They cost nothing: an interpreter starts with the first code."""
    for language in ("python", "node"):
        await _default(server, reached, language)


@post("/contexts", status_code=201, **_PLAIN)
async def create(request: Asking, server: Server, access: Access) -> dict[str, str]:
    """Makes a context. Its interpreter starts with the first code."""
    asked = decode(await _body(request), type=messages.CreateContext)
    reached = await there(server, access, request)
    await _defaults(server, reached)
    return (await _new(server, reached, _language(asked.language), asked.cwd)).told()


@get("/contexts", **_PLAIN)
async def listing(request: Asking, server: Server, access: Access) -> list[dict[str, str]]:
    """The contexts of the sandbox, default ones first."""
    reached = await there(server, access, request)
    await _defaults(server, reached)
    return [one.told() for one in server.e2b.of(reached.id).contexts.values()]


@post("/contexts/{context:str}/restart", status_code=200, **_PLAIN)
async def restart(request: Asking, server: Server, access: Access, context: str) -> None:
    """Gives a context a new interpreter, without state."""
    found = _known(server.e2b.of((await there(server, access, request)).id), context)
    await server.run(found.session.restart)
    found.count, found.prepared = 0, found.language != "python"


@delete("/contexts/{context:str}", status_code=200, **_PLAIN)
async def remove(request: Asking, server: Server, access: Access, context: str) -> None:
    """Ends a context."""
    state = server.e2b.of((await there(server, access, request)).id)
    found = _known(state, context)
    del state.contexts[found.id]
    await server.run(found.session.close)


@post("/execute", status_code=200, **_PLAIN)
async def execute(request: Asking, server: Server, access: Access) -> Stream:
    """Runs code. The answer has a line of JSON for each thing that it prints, shows or raises."""
    asked = decode(await _body(request), type=messages.Execute)
    reached = await there(server, access, request)
    if asked.context_id and asked.language:
        raise E2bRefusal(400, "give context_id or language, not both")
    if asked.context_id:
        context = _known(server.e2b.of(reached.id), asked.context_id)
    else:
        context = await _default(server, reached, _language(asked.language))
    context.state.room(context.state.streams, MOST_STREAMS, "streams")
    execution = Execution(server, context, asked.code, asked.env_vars or {})
    context.count += 1
    lines = context.state.counted(_lines(reached, execution, context.count))
    return Stream(lines, media_type="application/x-ndjson", headers={"x-accel-buffering": "no"}, status_code=200)


async def _lines(reached: Reached, execution: Execution, count: int) -> AsyncIterator[bytes]:
    yield _line({"type": "number_of_executions", "execution_count": count})
    said = execution.run()
    try:
        async for one in said:
            yield _line(one)
    except CommandError as problem:
        if reached.ended:
            raise  # this breaks the connection, which makes clients check whether the sandbox still runs
        yield _line({"type": "error", "name": "UnexpectedEndOfExecution", "value": str(problem), "traceback": ""})
    finally:
        await asyncio.shield(said.aclose())  # type: ignore[attr-defined]
    yield _line({"type": "end_of_execution"})


def _line(what: dict[str, Any]) -> bytes:
    return msgspec.json.encode(what) + b"\n"


async def _body(request: Asking) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_LIMIT:
            raise E2bRefusal(413, f"a body has at most {BODY_LIMIT} bytes")
    return bytes(body)


ROUTES = [create, listing, restart, remove, execute]
