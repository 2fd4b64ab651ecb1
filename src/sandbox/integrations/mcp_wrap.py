"""`sandbox mcp wrap -- server`: somebody else's MCP server behind walls, with its tool calls on the record.

What the server says about its tools is what a model acts on. The first time it is remembered, by a hash of each tool's
whole description. A tool that says something else later is withheld, and the person is told: that is how a server that
was reviewed once turns on its user.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from threading import Lock
from typing import Any

from sandbox.config.atomic_write import write_whole
from sandbox.config.home import home
from sandbox.errors import InvalidArgument

LINE_MOST = 32 * 2**20  # bytes of one message
TOOLS_MOST = 10_000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
REFUSED = -32001

Tell = Callable[[str], object]
Write = Callable[..., object]


class KnownTools:
    """What each tool of a server said about itself when it was first seen. Kept in a directory that no tenant sees."""

    def __init__(self, server: str) -> None:
        """Raises InvalidArgument for a name that is none."""
        if not NAME.fullmatch(server):
            raise InvalidArgument("{name!r} is no name for a server", name=server)
        self._path = os.path.join(home(), "mcp", f"{server}.json")
        try:
            with open(self._path, encoding="utf-8") as file:
                self._known: dict[str, str] = json.load(file)
        except FileNotFoundError:
            self._known = {}

    def changed(self, tools: list[dict[str, Any]]) -> set[str]:
        """The names of those that say something else than before. New ones are remembered."""
        said = {str(tool.get("name")): _hash(tool) for tool in tools[:TOOLS_MOST]}
        new = {name: found for name, found in said.items() if name not in self._known}
        if new:
            self._known |= new
            self._save()
        return {name for name, found in said.items() if self._known[name] != found}

    def accept(self) -> None:
        """Forgets all: what the server says next is what counts."""
        self._known = {}
        self._save()

    def _save(self) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        write_whole(self._path, json.dumps(self._known, indent=1))


def _hash(tool: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(tool, sort_keys=True).encode()).hexdigest()


class Wrapped:
    """What passes between a client and a server, line by line, and what is done about it."""

    def __init__(self, known: KnownTools, record: Write, tell: Tell) -> None:
        self._known, self._record, self._tell = known, record, tell
        self._lock = Lock()
        self._lists: set[str] = set()  # ids of requests for the list of tools
        self._withheld: set[str] = set()

    def from_client(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """What goes on to the server, and what is answered instead."""
        message = _read(line)
        if message is None:
            return line, None
        with self._lock:
            if message.get("method") == "tools/list" and "id" in message:
                self._lists.add(_key(message["id"]))
            if message.get("method") != "tools/call":
                return line, None
            params = message.get("params")
            name = str(params.get("name", ""))[:200] if isinstance(params, dict) else ""
            allowed = name not in self._withheld
            self._record(
                "policy_decision",
                "called an MCP tool",
                operation="mcp",
                target=name,
                result="allowed" if allowed else "blocked",
                policy="mcp-tool-changed" if not allowed else "mcp",
            )
            if allowed:
                return line, None
        problem = {
            "code": REFUSED,
            "message": f"the sandbox withholds {name}: it describes itself differently than before",
        }
        return None, json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": problem}).encode() + b"\n"

    def from_server(self, line: bytes) -> bytes | None:
        """What goes on to the client. What is no message does not: a client would take it for one that is broken."""
        message = _read(line)
        if message is None:
            return None
        result = message.get("result")
        with self._lock:
            if not isinstance(result, dict) or _key(message.get("id")) not in self._lists:
                return line
            self._lists.discard(_key(message["id"]))
            tools = result.get("tools")
            if not isinstance(tools, list) or not all(isinstance(one, dict) for one in tools):
                return line
            changed = self._known.changed(tools)
            for name in changed - self._withheld:
                self._tell(name)
                self._record(
                    "policy_decision",
                    "an MCP tool describes itself differently than before",
                    severity="warn",
                    operation="mcp",
                    target=name[:200],
                    result="blocked",
                    policy="mcp-tool-changed",
                )
            self._withheld = (self._withheld - {str(one.get("name")) for one in tools}) | changed
            result["tools"] = [one for one in tools if str(one.get("name")) not in changed]
        return json.dumps(message).encode() + b"\n"


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _key(id: object) -> str:
    return json.dumps(id)


class Lines:
    """Bytes as they come, as whole lines, each with its newline."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """The lines that are complete now. Raises InvalidArgument for one that is too long."""
        self._rest += data
        *whole, rest = bytes(self._rest).split(b"\n") if b"\n" in data else (bytes(self._rest),)
        if len(rest) > LINE_MOST:
            raise InvalidArgument("the MCP server sent a message that is too long")
        if whole:
            self._rest = bytearray(rest)
        return [line + b"\n" for line in whole]
