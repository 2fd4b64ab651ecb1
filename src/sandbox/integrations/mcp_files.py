"""The tools of the MCP server that are about files."""

# No `from __future__ import annotations`: the SDK builds the tools' schemas from these annotations.
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel, Field

from sandbox.integrations.mcp_output import OUTPUT_MOST
from sandbox.integrations.mcp_sessions import SessionSandboxes
from sandbox.integrations.mcp_tools import READS, WRITES, sendable, tool

FILE_MOST = 2 * 2**20


class Match(BaseModel):
    """A line that matched."""

    path: str
    line: int
    text: str


def add_files(server: MCPServer[SessionSandboxes], sandboxes: SessionSandboxes) -> None:
    @tool(server, sandboxes, READS)
    async def read_file(path: str, context: Context[Any, Any], offset: int = 0, limit: int = 2000) -> str:
        """Returns lines of a text file, from line `offset` (0 is the first), at most `limit` of them."""
        text = (await (await sandboxes.of(context)).read_file(path, FILE_MOST)).decode(errors="replace")
        return "".join(text.splitlines(keepends=True)[offset : offset + limit])[: 10 * OUTPUT_MOST]

    @tool(server, sandboxes, WRITES)
    async def write_file(path: str, content: str, context: Context[Any, Any]) -> str:
        """Makes a text file, with the directories above it, or replaces its content."""
        sandbox = await sandboxes.of(context)
        if "/" in path.strip("/"):
            await sandbox.mkdir(path.rpartition("/")[0])
        await sandbox.write_text(path, content)
        return f"wrote {len(content.encode())} bytes to {path}"

    @tool(server, sandboxes, WRITES)
    async def edit_file(path: str, old: str, new: str, context: Context[Any, Any], replace_all: bool = False) -> str:
        """Replaces text in a file. `old` must be in it exactly once, unless `replace_all` is set."""
        count = await (await sandboxes.of(context)).edit(path, old, new, replace_all)
        return f"replaced {count} time(s) in {path}"

    @tool(server, sandboxes, WRITES)
    async def apply_patch(patch: str, context: Context[Any, Any]) -> str:
        """Applies a unified diff, or a `*** Begin Patch` patch. One that does not fit changes nothing."""
        done = await (await sandboxes.of(context)).apply_patch(patch)
        return "\n".join(f"{one.change} {one.moved_to or one.path}" for one in done)


def add_searches(server: MCPServer[SessionSandboxes], sandboxes: SessionSandboxes) -> None:
    @tool(server, sandboxes, READS)
    async def list_files(context: Context[Any, Any], path: str = ".", depth: int = 2) -> str:
        """Draws the tree of files below a directory."""
        return await (await sandboxes.of(context)).tree(path, depth)

    @tool(server, sandboxes, READS)
    async def find_files(pattern: str, context: Context[Any, Any], path: str = ".") -> list[str]:
        """Returns the paths that match a pattern such as `src/**/*.py`."""
        return await (await sandboxes.of(context)).glob(pattern, path)

    @tool(server, sandboxes, READS)
    async def search_files(
        pattern: Annotated[str, Field(description="an extended regular expression")],
        context: Context[Any, Any],
        path: str = ".",
        glob: Annotated[str | None, Field(description="only files of such names, e.g. *.py")] = None,
        ignore_case: bool = False,
    ) -> list[Match]:
        """Returns the lines of files that match a regular expression."""
        found = await (await sandboxes.of(context)).grep(pattern, path, glob=glob, ignore_case=ignore_case)
        return [Match(path=sendable(one.path), line=one.number, text=sendable(one.text)) for one in found]
