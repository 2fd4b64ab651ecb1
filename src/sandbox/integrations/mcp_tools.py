"""How the MCP server's tools are added: each keeps its session in use, and reports a refusal with its own words."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp_types import ToolAnnotations

from sandbox.errors import SandboxError
from sandbox.integrations.mcp_sessions import SessionSandboxes

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)


def tool(
    server: MCPServer[SessionSandboxes], sandboxes: SessionSandboxes, annotations: ToolAnnotations, **more: Any
) -> Callable[[Any], Any]:
    """Adds a tool, which keeps its session in use."""

    def add(function: Any) -> Any:
        @wraps(function)
        async def called(**named: Any) -> Any:
            with told():
                async with sandboxes.using(named["context"]):
                    return sendable(await function(**named))

        return server.tool(annotations=annotations, **more)(called)

    return add


@contextmanager
def told() -> Iterator[None]:
    """The SDK hides exceptions, but a refusal names its rule, so its text is passed on to the model."""
    try:
        yield
    except (SandboxError, OSError, UnicodeError) as problem:
        raise ToolError(sendable(str(problem))) from problem


@contextmanager
def readable() -> Iterator[None]:
    """What a client may do wrong is told to the client: the SDK prints a traceback of any other error."""
    try:
        yield
    except (SandboxError, OSError, ValueError) as problem:
        raise ResourceError(sendable(str(problem))) from None


def sendable(value: Any) -> Any:
    """The value with text that UTF-8 has: a file's name need not be, and ends the connection when it is sent.

    Such a byte is shown as `\\udcff`, as in the tree of files.
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [sendable(one) for one in value]
    if isinstance(value, dict):
        return {sendable(key): sendable(one) for key, one in value.items()}
    return value
