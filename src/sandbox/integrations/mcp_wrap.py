"""`sandbox mcp wrap -- server`: somebody else's MCP server behind walls, with its tool calls on the record.

A model acts on a server's instructions and on how it describes its tools and prompts. The first session stores a hash
of each. Later, whatever is new or different is withheld, and the user is notified: a server that was reviewed once
could otherwise turn on its user.
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
NAMES_MOST = 10_000  # of one server, in all
NAME_LONGEST = 1_000
REPORTS_MOST = 1_000  # descriptions of one session that are reported as changed; a server with more is ended
LISTS = {"tool": "tools", "prompt": "prompts"}  # what a model reads about a server, and the list that holds it
INSTRUCTIONS = "instructions"
KINDS = (*LISTS, INSTRUCTIONS)
LISTED = "listed "  # and a kind: marks that one as known. What is remembered of tools and prompts begins with the kind.
CALLS = {"tools/call": "tool", "prompts/get": "prompt"}
POLICY = "mcp-description-changed"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
REFUSED = -32001
# What is judged by its key. Some clients read keys whatever their case (Go's encoding/json), so other spellings go.
MESSAGE_KEYS = frozenset(("jsonrpc", "id", "method", "params", "result", "error"))
RESULT_KEYS = frozenset((*LISTS.values(), INSTRUCTIONS))

Tell = Callable[[str], object]
Write = Callable[..., object]


def name_for(command: list[str]) -> str:
    """The name of a server that was given none: from the last word, `@scope/server@latest` as `server-latest`."""
    found = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(command[-1].rstrip("/"))).strip("-._")
    return found[:100] or "server"


class KnownWords:
    """What a server said about its tools and prompts, and its instructions, when it was first used.

    Kept in a directory that no tenant sees. Of each kind, the first session in which it is listed is accepted as it is;
    later only the same text is. (A client that only checks whether a server starts lists nothing.)
    """

    def __init__(self, server: str) -> None:
        """Raises InvalidArgument for text that is not a name."""
        if not NAME.fullmatch(server):
            raise InvalidArgument("{name!r} is not a valid name for a server", name=server)
        self._path = os.path.join(home(), "mcp", f"{server}.json")
        try:
            with open(self._path, encoding="utf-8") as file:
                self._known: dict[str, str] = json.load(file)
        except FileNotFoundError:
            self._known = {}
        listed = {kind for kind in KINDS if LISTED + kind in self._known}
        self._first = set() if self._known and not listed else set(KINDS) - listed  # no kinds: an older version's file

    def unknown(self, kind: str, said: dict[str, str]) -> set[str]:
        """The names whose text is new or has changed. `said` maps each name to a hash of its text."""
        if kind in self._first:
            fresh = [name for name in said if name not in self._known and len(name) <= NAME_LONGEST]
            room = NAMES_MOST - sum(not name.startswith(LISTED) for name in self._known)
            new = {name: said[name] for name in fresh[: max(0, room)]}
            # Instructions come before the lists. Those that come later than a list are new.
            marks = {LISTED + kind: "", LISTED + INSTRUCTIONS: ""}
            if new or not self._known.keys() >= marks.keys():
                self._known |= marks | new
                self._save()
        return {name for name, found in said.items() if self._known.get(name) != found}

    def forget(self) -> None:
        """Forgets all of it: what the server says next is accepted."""
        self._known, self._first = {}, set(KINDS)
        self._save()

    def _save(self) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        write_whole(self._path, json.dumps(self._known, indent=1))


class Wrapped:
    """Judges the messages between a client and a server, line by line."""

    def __init__(self, known: KnownWords, record: Write, tell: Tell) -> None:
        self._known, self._record, self._tell = known, record, tell
        self._lock = Lock()
        self._withheld: set[str] = set()
        self._reports = 0

    def from_client(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """Returns the line for the server, or else the refusal for the client. Only a single message is passed on."""
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
        """Returns the line for the client, encoded anew, so that the client reads exactly what was judged.

        Returns None for what is not a message: the client would take it for a broken one. Answers are recognised by
        their form, not by the request's id, which a server can spell in several ways. Raises InvalidArgument for a
        server that changes its descriptions without end.
        """
        message = _read(line)
        if message is None:
            return None
        message = _exactly(message, MESSAGE_KEYS)
        if isinstance(message.get("result"), dict):
            result = message["result"] = _exactly(message["result"], RESULT_KEYS)
            with self._lock:
                for kind, key in LISTS.items():
                    if key in result:
                        listed = result[key]
                        result[key] = self._judged(kind, listed) if isinstance(listed, list) else []
                if INSTRUCTIONS in result and self._unknown(INSTRUCTIONS, {INSTRUCTIONS: [result[INSTRUCTIONS]]}):
                    del result[INSTRUCTIONS]
        try:
            return json.dumps(message, allow_nan=False).encode() + b"\n"
        except ValueError:
            return None  # NaN, or a number too large for JSON: Python reads it, and no client does

    def _judged(self, kind: str, listed: list[Any]) -> list[Any]:
        """The entries that have not changed. Entries of one name are judged together: a client may use any of them."""
        named: dict[str, list[Any]] = {}
        for one in listed:
            named.setdefault(f"{kind} {one.get('name') if isinstance(one, dict) else ''}", []).append(one)
        unknown = self._unknown(kind, named)
        self._withheld = (self._withheld - set(named)) | unknown
        return [one for name, ones in named.items() if name not in unknown for one in ones]

    def _unknown(self, kind: str, named: dict[str, list[Any]]) -> set[str]:
        unknown = self._known.unknown(kind, {name: _hash(said) for name, said in named.items()})
        for name in unknown - self._withheld:
            self._reports += 1
            if self._reports > REPORTS_MOST:
                raise InvalidArgument("the MCP server describes too much otherwise than before")
            self._tell(name)
            summary = "an MCP server describes something otherwise than before"
            more = {"operation": "mcp", "target": name[:200], "result": "blocked", "policy": POLICY}
            self._record("policy_decision", summary, severity="warn", **more)
        return unknown


def _hash(said: list[Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _exactly(found: dict[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """Without the keys that differ from one of `keys` in case alone."""
    return {key: value for key, value in found.items() if key in keys or key.casefold() not in keys}


def _refusal(id: object, message: str) -> bytes:
    problem = {"code": REFUSED, "message": message}
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": problem}).encode() + b"\n"


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


class StreamLines:
    """Splits a stream of bytes into lines, each with its newline."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """The lines that are complete now. Raises InvalidArgument for one that is too long."""
        self._rest += data
        whole: list[bytes] = []
        if b"\n" in data:  # else nothing is copied: a line may come in a great many pieces
            *whole, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
        if len(self._rest) > LINE_MOST:
            raise InvalidArgument("the MCP server sent a message that is too long")
        return [line + b"\n" for line in whole]
