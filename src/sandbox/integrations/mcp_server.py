"""`sandbox mcp`: an MCP server whose tools act in a sandbox, one for each client session. See docs/integrations/mcp.md.

Import this module only to make a server: it loads the SDK. No tool can do more than `AsyncSandbox` can.
"""

# No `from __future__ import annotations`: the SDK builds the tools' schemas from these annotations.
import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from sandbox import __version__
from sandbox.aio import AsyncSandbox
from sandbox.async_session import AsyncCodeSession
from sandbox.audit.reading import entries
from sandbox.config.home import record_directory
from sandbox.errors import SandboxError
from sandbox.result import Chunk, ExecResult
from sandbox.sandbox import Sandbox

OUTPUT_MOST = 100_000  # bytes of each output stream that a model sees
FILE_MOST = 2 * 2**20
SESSIONS_MOST = 64
PARTS_MOST = 50
LISTED_MOST = 2000  # characters of changes in one question
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
INSTRUCTIONS = """\
Everything these tools do happens in one sandbox: kernel-enforced walls around the project directory. Files outside \
it, hosts that are not allowed and secrets are out of reach. A refusal names the rule that refused; trying again will \
not help. Ask the person to allow it instead."""


class Ran(BaseModel):
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool
    truncated: bool


class Found(BaseModel):
    """A line that matched."""

    path: str
    line: int
    text: str


class Changed(BaseModel):
    """A file that differs from the host's."""

    path: str
    kind: str


class Consent(BaseModel):
    """What the person is asked."""

    write_them: bool = False


class Sandboxes:
    """One sandbox for each client session: made by its first tool call, closed with the session or with the server."""

    def __init__(self, make: Callable[[], AsyncSandbox]) -> None:
        self._make = make
        self._lock = asyncio.Lock()
        self._of: dict[str, AsyncSandbox] = {}
        self._python: dict[str, AsyncCodeSession] = {}

    async def of(self, context: Context[Any, Any]) -> AsyncSandbox:
        """The sandbox of the calling session."""
        async with self._lock:
            return await self._find(_session(context))

    async def _find(self, session: str) -> AsyncSandbox:
        found = self._of.get(session)
        if found is None or found.sync._closed:
            self._of = {name: one for name, one in self._of.items() if not one.sync._closed}
            if len(self._of) >= SESSIONS_MOST:
                raise ToolError("too many sessions have a sandbox; end one of them first")
            self._python.pop(session, None)
            try:
                found = self._of[session] = await self._make().start()
            except SandboxError as problem:
                raise ToolError(f"the sandbox could not be started: {problem}") from problem
        return found

    async def python(self, context: Context[Any, Any]) -> AsyncCodeSession:
        """The Python of the calling session's sandbox."""
        async with self._lock:
            session = _session(context)
            sandbox = await self._find(session)
            if session not in self._python:
                self._python[session] = await sandbox.python()
            return self._python[session]

    async def end(self, session: str) -> None:
        """Ends the sandbox of a session that its client has ended."""
        if session and (found := self._of.pop(session, None)) is not None:
            self._python.pop(session, None)
            await found.close()

    async def close(self) -> None:
        """Closes every sandbox."""
        await asyncio.gather(*(one.close() for one in self._of.values()))


def _session(context: Context[Any, Any]) -> str:
    """Over stdio there is one client. Over HTTP the transport names the session, or else the client does."""
    headers = context.headers or {}
    return str(headers.get("mcp-session-id") or headers.get("x-sandbox-session") or "")[:200]


def make_server(make: Callable[[], AsyncSandbox]) -> tuple[MCPServer[Sandboxes], Sandboxes]:
    """Returns the server and its sandboxes; `make` returns a sandbox that has not been started yet."""
    sandboxes = Sandboxes(make)

    @asynccontextmanager
    async def lifespan(_: MCPServer[Sandboxes]) -> AsyncIterator[Sandboxes]:
        try:
            yield sandboxes
        finally:
            await sandboxes.close()

    server = MCPServer(
        "sandbox", version=__version__, instructions=INSTRUCTIONS, lifespan=lifespan, log_level="WARNING"
    )
    for add in (_add_commands, _add_files, _add_searches, _add_policy, _add_resources):
        add(server, sandboxes)
    return server, sandboxes


def _tool(server: MCPServer[Sandboxes], annotations: ToolAnnotations, **more: Any) -> Callable[[Any], Any]:
    """Adds a tool. The SDK hides exceptions, but a refusal names its rule, so its text is passed on to the model."""

    def add(function: Any) -> Any:
        @wraps(function)
        async def called(*words: Any, **named: Any) -> Any:
            try:
                return await function(*words, **named)
            except (SandboxError, OSError, UnicodeError) as problem:
                raise ToolError(str(problem)) from problem

        return server.tool(annotations=annotations, **more)(called)

    return add


def _add_commands(server: MCPServer[Sandboxes], sandboxes: Sandboxes) -> None:
    @_tool(server, RUNS)
    async def run_command(
        command: Annotated[str, Field(description="a shell command")],
        context: Context[Any, Any],
        cwd: Annotated[str | None, Field(description="directory to run it in; default: the project")] = None,
        timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 120,
    ) -> Ran:
        """Runs a shell command in the sandbox. Its output is streamed as progress; cancelling the call kills it."""
        sandbox = await sandboxes.of(context)
        shown = {"stdout": Tail(), "stderr": Tail()}
        said = 0
        async for piece in sandbox.exec_stream(command, cwd, timeout=timeout_seconds):
            if isinstance(piece, Chunk):
                shown[piece.stream].add(piece.data)
                said += 1
                await context.report_progress(said, message=piece.data[-2000:].decode(errors="replace"))
            else:
                result = piece
        return _ran(result, shown["stdout"], shown["stderr"])

    @_tool(server, RUNS, structured_output=False)
    async def run_python(
        code: Annotated[str, Field(description="Python code; the value of the last line is returned")],
        context: Context[Any, Any],
        timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 120,
    ) -> list[str | Image]:
        """Runs Python in the sandbox's own interpreter. Variables, imports and definitions stay."""
        session = await sandboxes.python(context)
        result = await session.run(code, timeout_seconds, max_output=OUTPUT_MOST)
        parts: list[str | Image] = [text for text in (result.stdout, result.stderr) if text]
        for output in result.outputs:
            picture = output.png
            parts.append(Image(data=picture, format="png") if picture else output.text[:OUTPUT_MOST])
        if result.error is not None:
            raise ToolError("\n".join([*(part for part in parts if isinstance(part, str)), result.error.traceback]))
        return bounded([*parts, "timed out; the state is kept"] if result.timed_out else parts or ["(no output)"])


def _add_files(server: MCPServer[Sandboxes], sandboxes: Sandboxes) -> None:
    @_tool(server, READS)
    async def read_file(path: str, context: Context[Any, Any], offset: int = 0, limit: int = 2000) -> str:
        """Returns lines of a text file, from line `offset` (0 is the first), at most `limit` of them."""
        text = (await (await sandboxes.of(context)).read_file(path, FILE_MOST)).decode(errors="replace")
        return "".join(text.splitlines(keepends=True)[offset : offset + limit])[: 10 * OUTPUT_MOST]

    @_tool(server, WRITES)
    async def write_file(path: str, content: str, context: Context[Any, Any]) -> str:
        """Makes a text file, with the directories above it, or replaces its content."""
        sandbox = await sandboxes.of(context)
        if "/" in path.strip("/"):
            await sandbox.mkdir(path.rpartition("/")[0])
        await sandbox.write_text(path, content)
        return f"wrote {len(content.encode())} bytes to {path}"

    @_tool(server, WRITES)
    async def edit_file(path: str, old: str, new: str, context: Context[Any, Any], replace_all: bool = False) -> str:
        """Replaces text in a file. `old` must be in it exactly once, unless `replace_all` is set."""
        count = await (await sandboxes.of(context)).edit(path, old, new, replace_all)
        return f"replaced {count} time(s) in {path}"

    @_tool(server, WRITES)
    async def apply_patch(patch: str, context: Context[Any, Any]) -> str:
        """Applies a unified diff, or a `*** Begin Patch` patch. One that does not fit changes nothing."""
        done = await (await sandboxes.of(context)).apply_patch(patch)
        return "\n".join(f"{one.change} {one.moved_to or one.path}" for one in done)


def _add_searches(server: MCPServer[Sandboxes], sandboxes: Sandboxes) -> None:
    @_tool(server, READS)
    async def list_files(context: Context[Any, Any], path: str = ".", depth: int = 2) -> str:
        """Draws the tree of files below a directory."""
        return await (await sandboxes.of(context)).tree(path, depth)

    @_tool(server, READS)
    async def find_files(pattern: str, context: Context[Any, Any], path: str = ".") -> list[str]:
        """Returns the paths that match a pattern such as `src/**/*.py`."""
        return await (await sandboxes.of(context)).glob(pattern, path)

    @_tool(server, READS)
    async def search_files(
        pattern: Annotated[str, Field(description="an extended regular expression")],
        context: Context[Any, Any],
        path: str = ".",
        glob: Annotated[str | None, Field(description="only files of such names, e.g. *.py")] = None,
        ignore_case: bool = False,
    ) -> list[Found]:
        """Returns the lines of files that match a regular expression."""
        found = await (await sandboxes.of(context)).grep(pattern, path, glob=glob, ignore_case=ignore_case)
        return [Found(path=one.path, line=one.number, text=one.text) for one in found]


def _add_policy(server: MCPServer[Sandboxes], sandboxes: Sandboxes) -> None:
    @_tool(server, READS)
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

    @_tool(server, READS)
    async def list_changes(context: Context[Any, Any]) -> list[Changed]:
        """With an overlay: lists what differs from the person's files, which only they can change."""
        return [Changed(path=one.path, kind=one.kind) for one in await (await sandboxes.of(context)).changes()]

    @_tool(server, WRITES)
    async def apply_changes(context: Context[Any, Any], paths: list[str] | None = None) -> str:
        """With an overlay: asks the person whether changes may be written to their own files, and writes them if so."""
        sandbox = await sandboxes.of(context)
        wanted = [one for one in await sandbox.changes() if paths is None or one.path in paths]
        listed = ascii(", ".join(f"{one.kind} {one.path}" for one in wanted))  # names from inside: escaped
        if len(listed) > LISTED_MOST:
            raise ToolError("too many changes for one question: name some of the paths")
        capabilities = context.client_capabilities
        if capabilities is None or capabilities.elicitation is None:
            raise ToolError(f"this client cannot ask the person: `sandbox diff {sandbox.id}` shows the changes")
        answer = await context.elicit(f"Write {len(wanted)} change(s) to your files? {listed}", Consent)
        if answer.action != "accept" or not answer.data.write_them:
            raise ToolError("the person did not agree")
        names = [one.path for one in wanted]
        if [one for one in await sandbox.changes() if one.path in names] != wanted:
            raise ToolError("the files changed while the person was asked")
        applied = await sandbox.apply(names)
        return f"applied {len(applied.applied)}, refused {len(applied.refused)}"


def _add_resources(server: MCPServer[Sandboxes], sandboxes: Sandboxes) -> None:
    @server.resource("sandbox://files/{+path}", mime_type="application/octet-stream")
    async def file(path: str, context: Context[Any, Any]) -> bytes:
        """A file of the sandbox."""
        return await (await sandboxes.of(context)).read_file(path, FILE_MOST)

    @server.resource("sandbox://record/{last}", mime_type="application/json")
    async def record(last: int, context: Context[Any, Any]) -> list[dict[str, Any]]:
        """The last entries of the sandbox's audit record: what was run, connected to and refused."""
        sandbox = await sandboxes.of(context)
        return await asyncio.to_thread(recorded, sandbox.sync, min(last, 1000))

    @server.prompt()
    def explain_refusal(message: str) -> str:
        """What to do about something that the sandbox refused."""
        return (
            f"The sandbox refused this:\n\n{message}\n\nSay which rule refused it and why that rule may be there. Do "
            "not try to get around it. Propose the smallest change of the configuration (`sandbox config add …`) that "
            "would allow it, and let the person decide."
        )


def recorded(sandbox: Sandbox, last: int) -> list[dict[str, Any]]:
    """The last entries of the record that are about a sandbox."""
    kept: deque[dict[str, Any]] = deque(maxlen=max(0, last))
    kept.extend(one for one in entries(record_directory(sandbox.config)) if one.get("sandbox") == sandbox.id)
    return list(kept)


def bounded(parts: list[str | Image]) -> list[str | Image]:
    """As many of the parts as a model should see at once."""
    room, kept = 2 * OUTPUT_MOST, []
    for part in parts[:PARTS_MOST]:
        text = part[:room] if isinstance(part, str) else part
        room -= len(text) if isinstance(text, str) else 0
        kept.append(text)
    return kept


class Tail:
    """Output up to a limit: what a model needs is mostly at the beginning and at the end."""

    def __init__(self) -> None:
        self._first, self._last, self.cut = bytearray(), bytearray(), False

    def add(self, data: bytes) -> None:
        """Keeps the first half of the limit, and the last."""
        room = OUTPUT_MOST // 2 - len(self._first)
        self._first += data[:room]
        self._last += data[room:] if room > 0 else data
        if len(self._last) > OUTPUT_MOST // 2:
            self.cut = True
            del self._last[: -OUTPUT_MOST // 2]

    def text(self) -> str:
        """What was kept."""
        middle = b"\n[... output cut by sandbox ...]\n" if self.cut else b""
        return (bytes(self._first) + middle + bytes(self._last)).decode(errors="replace")


def _ran(result: ExecResult, out: Tail, err: Tail) -> Ran:
    return Ran(
        exit_code=result.exit_code,
        stdout=out.text(),
        stderr=err.text() + (f"\n{result.note}" if result.note else ""),
        timed_out=result.timed_out,
        truncated=out.cut or err.cut,
    )
