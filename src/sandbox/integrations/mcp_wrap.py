"""`sandbox mcp wrap -- server`: somebody else's MCP server behind walls, with its tool calls on the record.

What the server says about its tools and prompts, and its instructions, is what a model acts on. In the first session it
is remembered, by a hash of each. What is new or says something else later is withheld, and the user is notified: that
is how a server that was reviewed once turns on its user.
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
NAMES_MOST = 10_000
LISTS = {"tool": "tools", "prompt": "prompts"}  # what a model reads of a server, and the lists it stands in
CALLS = {"tools/call": "tool", "prompts/get": "prompt"}
POLICY = "mcp-description-changed"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
REFUSED = -32001

Tell = Callable[[str], object]
Write = Callable[..., object]


class KnownWords:
    """What a server said about its tools and prompts, and to the model, when it was first used.

    Kept in a directory that no tenant sees. Whatever it says in its first session is taken; later only the same.
    """

    def __init__(self, server: str) -> None:
        """Raises InvalidArgument for text that is not a name."""
        if not NAME.fullmatch(server):
            raise InvalidArgument("{name!r} is no name for a server", name=server)
        self._path = os.path.join(home(), "mcp", f"{server}.json")
        try:
            with open(self._path, encoding="utf-8") as file:
                self._known: dict[str, str] = json.load(file)
        except FileNotFoundError:
            self._known = {}
        self._first_session = not self._known

    def unknown(self, said: dict[str, str]) -> set[str]:
        """Which of these names, each with a hash of what is said, were not said so before."""
        if self._first_session:
            new = {name: found for name, found in list(said.items())[:NAMES_MOST] if name not in self._known}
            if new:
                self._known |= new
                self._save()
        return {name for name, found in said.items() if self._known.get(name) != found}

    def forget(self) -> None:
        """What the server says next is what counts."""
        self._known, self._first_session = {}, True
        self._save()

    def _save(self) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        write_whole(self._path, json.dumps(self._known, indent=1))


class Wrapped:
    """What passes between a client and a server, line by line, and what is done about it."""

    def __init__(self, known: KnownWords, record: Write, tell: Tell) -> None:
        self._known, self._record, self._tell = known, record, tell
        self._lock = Lock()
        self._withheld: set[str] = set()

    def from_client(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """What goes on to the server, and what is answered instead. What is no single message does not go on."""
        message = _read(line)
        if message is None:
            return None, _refusal(None, "not a JSON-RPC message")
        kind = CALLS.get(str(message.get("method")))
        if kind is None:
            return line, None
        params = message.get("params")
        name = f"{kind} {params.get('name') if isinstance(params, dict) else ''}"
        with self._lock:
            allowed = name not in self._withheld
        self._record(
            "policy_decision",
            "asked an MCP server",
            operation="mcp",
            target=name[:200],
            result="allowed" if allowed else "blocked",
            policy="mcp" if allowed else POLICY,
        )
        if allowed:
            return line, None
        return None, _refusal(message.get("id"), f"the sandbox withholds the {name}: it was described otherwise before")

    def from_server(self, line: bytes) -> bytes | None:
        """What goes on to the client, written anew: what was judged is what the client reads.

        What is no message does not: a client would take it for one that is broken. Answers are recognised by their
        form, not by the request's id, which a server can spell in several ways.
        """
        message = _read(line)
        if message is None:
            return None
        result = message.get("result")
        if isinstance(result, dict):
            with self._lock:
                for kind, key in LISTS.items():
                    if key in result:
                        listed = result[key]
                        result[key] = self._judged(kind, listed) if isinstance(listed, list) else []
                if "instructions" in result and self._unknown({"instructions": [result["instructions"]]}):
                    del result["instructions"]
        return json.dumps(message).encode() + b"\n"

    def _judged(self, kind: str, listed: list[Any]) -> list[Any]:
        """Those that say what they said before. Two of one name count together: a client may take either."""
        named: dict[str, list[Any]] = {}
        for one in listed:
            named.setdefault(f"{kind} {one.get('name') if isinstance(one, dict) else ''}", []).append(one)
        unknown = self._unknown(named)
        self._withheld = (self._withheld - set(named)) | unknown
        return [one for name, ones in named.items() if name not in unknown for one in ones]

    def _unknown(self, named: dict[str, list[Any]]) -> set[str]:
        unknown = self._known.unknown({name: _hash(said) for name, said in named.items()})
        for name in unknown - self._withheld:
            self._tell(name)
            summary = "an MCP server describes something otherwise than before"
            more = {"operation": "mcp", "target": name[:200], "result": "blocked", "policy": POLICY}
            self._record("policy_decision", summary, severity="warn", **more)
        return unknown


def _hash(said: list[Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _refusal(id: object, message: str) -> bytes:
    problem = {"code": REFUSED, "message": message}
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": problem}).encode() + b"\n"


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


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
