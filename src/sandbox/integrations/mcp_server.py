"""`sandbox mcp`: an MCP server whose tools act in a sandbox, one for each client session. See docs/integrations/mcp.md.

Import this module only to make a server: it loads the SDK. No tool can do more than `AsyncSandbox` can.
"""

# No `from __future__ import annotations`: the SDK builds the tools' schemas from these annotations.
import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, ElicitationResult, Resolve
from mcp_types import InputRequiredResult
from pydantic import BaseModel, Field

from sandbox import __version__
from sandbox.integrations.mcp_files import add_files, add_searches
from sandbox.integrations.mcp_output import OUTPUT_MOST, ClippedOutput, Ran, bounded, ran
from sandbox.integrations.mcp_questions import ToolCall, can_ask
from sandbox.integrations.mcp_resources import add_resources, note_request
from sandbox.integrations.mcp_sessions import SessionSandboxes
from sandbox.integrations.mcp_tools import READS, RUNS, WRITES, sendable, told, tool
from sandbox.result import Chunk
from sandbox.sessions.result import CodeResult
from sandbox.vfs.changes import Change

LISTED_MOST = 2000  # characters of changes in one question
INSTRUCTIONS = """\
Everything these tools do happens in one sandbox: kernel-enforced walls around the project directory. Files outside \
it, hosts that are not allowed and secrets are out of reach. A refusal names the rule that refused; trying again will \
not help. Ask the person to allow it instead."""


class ChangedFile(BaseModel):
    """A file that differs from the host's."""

    path: str
    kind: str


class Consent(BaseModel):
    """What the person is asked."""

    write_them: bool = False


def make_server(sandboxes: SessionSandboxes) -> MCPServer[SessionSandboxes]:
    """Returns the server whose tools act in these sandboxes."""

    @asynccontextmanager
    async def lifespan(_: MCPServer[SessionSandboxes]) -> AsyncIterator[SessionSandboxes]:
        watching = asyncio.ensure_future(sandboxes.end_unused())
        try:
            yield sandboxes
        finally:
            watching.cancel()
            await sandboxes.close()

    server = MCPServer(
        "sandbox",
        version=__version__,
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        log_level="WARNING",
        middleware=[note_request],
        subscriptions=False,  # nothing here says when a command changes a file: do not offer what would stay silent
    )
    for add in (_add_commands, add_files, add_searches, _add_policy, add_resources, _add_prompts):
        add(server, sandboxes)
    return server


def _add_commands(server: MCPServer[SessionSandboxes], sandboxes: SessionSandboxes) -> None:
    @tool(server, sandboxes, RUNS)
    async def run_command(
        command: Annotated[str, Field(description="a shell command")],
        context: Context[Any, Any],
        cwd: Annotated[str | None, Field(description="directory to run it in; default: the project")] = None,
        timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 120,
    ) -> Ran | InputRequiredResult:
        """Runs a shell command in the sandbox. Its output is streamed as progress; cancelling the call kills it."""

        async def work(call: ToolCall) -> Ran:
            sandbox = await sandboxes.of(context)
            shown = {"stdout": ClippedOutput(), "stderr": ClippedOutput()}
            said = 0
            async for piece in sandbox.exec_stream(command, cwd, timeout=timeout_seconds):
                if isinstance(piece, Chunk):
                    shown[piece.stream].add(piece.data)
                    said += 1
                    await call.progress(said, piece.data[-2000:].decode(errors="replace"))
                else:
                    result = piece
            return ran(result, shown["stdout"], shown["stderr"])

        async with sandboxes.using(context) as session:
            return await session.questions.run(context, work)  # type: ignore[no-any-return]

    @tool(server, sandboxes, RUNS, structured_output=False)
    async def run_python(
        code: Annotated[str, Field(description="Python code; the value of the last line is returned")],
        context: Context[Any, Any],
        timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 120,
    ) -> list[str | Image] | InputRequiredResult:
        """Runs Python in the sandbox's own interpreter. Variables, imports and definitions stay."""
        async with sandboxes.using(context) as session:

            async def work(_: ToolCall) -> list[str | Image]:
                python = await session.python()
                return _shown(await python.run(code, timeout_seconds, max_output=OUTPUT_MOST))

            return await session.questions.run(context, work)  # type: ignore[no-any-return]


def _shown(result: CodeResult) -> list[str | Image]:
    """What a model sees of a run. Raises ToolError for code that failed."""
    parts: list[str | Image] = [text for text in (result.stdout, result.stderr) if text]
    for output in result.outputs:
        picture = output.png
        parts.append(Image(data=picture, format="png") if picture else output.text[:OUTPUT_MOST])
    if result.timed_out:
        parts.append("timed out, and was interrupted")
    if result.error is not None:
        raise ToolError("\n".join([*(part for part in parts if isinstance(part, str)), result.error.traceback]))
    return bounded(parts or ["(no output)"])


def _add_policy(server: MCPServer[SessionSandboxes], sandboxes: SessionSandboxes) -> None:
    @tool(server, sandboxes, READS)
    async def sandbox_policy(context: Context[Any, Any]) -> dict[str, Any]:
        """Says what this sandbox may do: its directory, allowed hosts, questions that wait for the person."""
        sandbox = await sandboxes.of(context)
        network = sandbox.sync.config.network
        return {
            "id": sandbox.id,
            "engine": sandbox.engine,
            "directory": sandbox.directory,
            "allowed_hosts": list(network.allowed_hosts),
            "asks_for_other_hosts": network.ask,
            "waiting_questions": [str(one) for one in await sandbox.asks()],
        }

    @tool(server, sandboxes, READS)
    async def list_changes(context: Context[Any, Any]) -> list[ChangedFile]:
        """With an overlay: lists what differs from the person's files, which only they can change."""
        changes = await (await sandboxes.of(context)).changes()
        return [ChangedFile(path=sendable(one.path), kind=one.kind) for one in changes]

    _add_apply(server, sandboxes)


def _add_apply(server: MCPServer[SessionSandboxes], sandboxes: SessionSandboxes) -> None:
    async def wanted(context: Context[Any, Any], paths: list[str] | None) -> list[Change]:
        with told():
            changes = await (await sandboxes.of(context)).changes()
        return [one for one in changes if paths is None or one.path in paths]

    async def asked(context: Context[Any, Any], changes: Annotated[list[Change], Resolve(wanted)]) -> Elicit[Consent]:
        """The question. It names the state of the files: when they differ at the answer, the person is asked again."""
        listed = ascii(", ".join(f"{one.kind} {one.path}" for one in changes))  # names from inside: escaped
        if len(listed) > LISTED_MOST:
            raise ToolError("too many changes for one question: name some of the paths")
        if not can_ask(context):
            raise ToolError(
                "this client cannot ask the person: `sandbox diff` shows the changes, `sandbox apply` takes them over"
            )
        state = hashlib.sha256(repr(changes).encode(errors="surrogateescape")).hexdigest()[:12]
        return Elicit(f"Write {len(changes)} change(s) to your files? {listed} (state {state})", Consent)

    @tool(server, sandboxes, WRITES)
    async def apply_changes(
        context: Context[Any, Any],
        changes: Annotated[list[Change], Resolve(wanted)],
        consent: Annotated[ElicitationResult[Consent], Resolve(asked)],
        paths: list[str] | None = None,
    ) -> str:
        """With an overlay: asks the person whether changes may be written to their own files, and writes them if so."""
        if consent.action != "accept" or not consent.data.write_them:
            raise ToolError("the person did not agree")
        sandbox = await sandboxes.of(context)
        names = [one.path for one in changes]
        if [one for one in await sandbox.changes() if one.path in names] != changes:
            raise ToolError("the files changed while the person was asked")
        applied = await sandbox.apply(names)
        return f"applied {len(applied.applied)}, refused {len(applied.refused)}"


def _add_prompts(server: MCPServer[SessionSandboxes], sandboxes: SessionSandboxes) -> None:
    @server.prompt()
    def explain_refusal(message: str) -> str:
        """What to do about something that the sandbox refused."""
        return (
            f"The sandbox refused this:\n\n{message}\n\nSay which rule refused it and why that rule may be there. Do "
            "not try to get around it. Propose the smallest change of the configuration (`sandbox config add …`) that "
            "would allow it, and let the person decide."
        )
