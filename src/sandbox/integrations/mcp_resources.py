"""The resources of the MCP server: the sandbox's files and its record, and how a client completes their addresses."""

# No `from __future__ import annotations`: the SDK looks for the context in these annotations.
import asyncio
from contextvars import ContextVar
from typing import Any

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp_types import Completion, CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

from sandbox.errors import SandboxError
from sandbox.integrations.mcp_files import FILE_MOST
from sandbox.integrations.mcp_output import recorded
from sandbox.integrations.mcp_sessions import SessionSandboxes
from sandbox.integrations.mcp_tools import readable, sendable

FILES = "sandbox://files/{+path}"
RECORD = "sandbox://record/{last}"
RECORD_MOST = 1000  # entries of the record in one answer
COMPLETED_MOST = 100  # names in one answer; the protocol allows no more

#: The request that is being answered: the SDK does not tell a completion's handler whose it is.
_request: ContextVar[ServerRequestContext[Any, Any]] = ContextVar("request")


async def note_request(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware for `make_server`: completions act in the sandbox of the session that asks."""
    _request.set(ctx)
    return await call_next(ctx)


def add_resources(server: MCPServer[SessionSandboxes], sandboxes: SessionSandboxes) -> None:
    @server.resource(FILES, mime_type="application/octet-stream")
    async def file(path: str, context: Context[Any, Any]) -> bytes:
        """A file of the sandbox."""
        async with sandboxes.using(context) as session:
            with readable():
                return await (await session.sandbox()).read_file(path, FILE_MOST)

    @server.resource(RECORD, mime_type="application/json")
    async def record(last: str, context: Context[Any, Any]) -> list[dict[str, Any]]:
        """The last entries of the sandbox's audit record: what was run, connected to and refused."""
        if not (last.isascii() and last.isdecimal() and len(last) < 10):
            raise ResourceError("sandbox://record/N: N is a number of entries")
        async with sandboxes.using(context) as session:
            with readable():
                sandbox = await session.sandbox()
                return sendable(await asyncio.to_thread(recorded, sandbox.sync, min(int(last), RECORD_MOST)))  # type: ignore[no-any-return]

    @server.completion()  # type: ignore[no-untyped-call]
    async def complete(
        reference: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        _: CompletionContext | None,
    ) -> Completion | None:
        """Names of files and directories, for a client that lets its person choose a resource."""
        if not isinstance(reference, ResourceTemplateReference) or reference.uri != FILES or argument.name != "path":
            return None
        async with sandboxes.using(Context(request_context=_request.get(), mcp_server=server)) as session:
            names = await _below(session, argument.value)
        return Completion(values=names[:COMPLETED_MOST], total=len(names), has_more=len(names) > COMPLETED_MOST)


async def _below(session: Any, typed: str) -> list[str]:
    """The paths that begin with what was typed, and can be read as a resource: below the project. A person chooses
    among them, so a name that would not be shown as it is, is left out."""
    directory, slash, start = typed.rpartition("/")
    if typed.startswith("/") or ".." in directory.split("/"):
        return []
    try:
        found = await (await session.sandbox()).list_files(directory or ".")
    except (SandboxError, OSError, ValueError, ToolError):
        return []
    names = (one for one in found if one.name.startswith(start) and one.name.isprintable())
    return sorted(f"{directory}{slash}{one.name}{'/' * one.is_dir}" for one in names)
