"""The messages to and from an external decider (`srt proxy`), version 1 of srt's protocol. Pure functions.

A frame is a length (four bytes, big-endian) and one JSON object of at most MAX_FRAME bytes. The proxy greets first:

    proxy    {"t": "hello", "proto": 1}
    decider  {"t": "hello", "proto": 1, "allowedDomains": […], "deniedDomains": […]}
    proxy    {"t": "req", "id", "method", "host", "port", "hostHeader"?, "sni"?, "path", "query"?, "headers"?}
    decider  {"t": "verdict", "id", "action": "allow", "setHeaders"?, "removeHeaders"?, "cred"? with "credential"?}
             {"t": "verdict", "id", "action": "deny", "status", "reason"?}
             {"t": "verdict", "id", "action": "need_body", "max"}
    proxy    {"t": "body", "id", "data": base64, "cut"?: true}

Optional fields are left out, never empty or null. Anything else that a decider sends breaks the protocol.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

from sandbox.network.http.headers import fold
from sandbox.policy.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    Headers = dict[str, list[str]]

MAX_FRAME = 2**20
MAX_BODY = 32 * 2**20
MAX_ID = 2**53 - 1
MAX_VALUES, MAX_NAMES, MAX_BYTES = 190, 190, 64 * 1024
MAX_TEXT = 8 * 1024  # of a host, a Host field, a server name, a path
MAX_REASON = 1024

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_CREDENTIAL = re.compile(r"[\x21-\x7e]{1,8192}")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_CREDENTIALS = ("authorization", "proxy-authorization", "cookie", "x-api-key")
_FRAMING = frozenset(
    (
        "host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "keep-alive",
        "proxy-connection",
    )
)  # fmt: skip
_FIELDS = {
    "allow": {"setHeaders", "removeHeaders", "cred", "credential"},
    "deny": {"status", "reason"},
    "need_body": {"max"},
}


class Broken(Exception):
    """The decider broke the protocol."""


class TooMuch(Exception):
    """A request that a decider cannot be asked about."""


# -- frames


def frame(message: Mapping[str, Any]) -> bytes:
    """`message` with its length."""
    data = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    return len(data).to_bytes(4, "big") + data


def body_frame(number: int, data: bytes, cut: bool) -> bytes:
    """The frame for a decider that asked for a body; `cut` when there is more of it."""
    said = {"t": "body", "id": number, "data": base64.b64encode(data).decode()}
    return frame({**said, "cut": True} if cut else said)


def read(data: bytes) -> dict[str, Any]:
    """The object in a frame. Raises Broken for anything that two parsers could read differently."""
    try:
        found = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except UnicodeDecodeError:
        raise Broken("a frame is not UTF-8") from None
    except (ValueError, RecursionError):
        raise Broken("a frame is not valid JSON") from None
    if not isinstance(found, dict):
        raise Broken("a frame is not an object")
    _refuse_odd(found)
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Broken("a frame has a key twice")
    return found


def _no_number(text: str) -> None:
    raise Broken(f"a frame has the number {text}")


def _refuse_odd(value: object) -> None:
    if value is None:
        raise Broken("a frame has a null")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Broken("a frame has half a character") from None
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _refuse_odd(one)


# -- the decider's words


def hello(said: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The allowed and denied hosts of the decider's greeting. Raises Broken."""
    if set(said) != {"t", "proto", "allowedDomains", "deniedDomains"} or said["t"] != "hello":
        raise Broken("bad hello")
    allowed, denied = said["allowedDomains"], said["deniedDomains"]
    if not _is_number(said["proto"], 1, 1) or not _are_hosts(allowed) or not _are_hosts(denied):
        raise Broken("bad hello")
    return allowed, denied


def _are_hosts(value: Any) -> bool:
    return _are_texts(value) and len(set(value)) == len(value) and all(map(is_host_entry, value))


def is_host_entry(text: str) -> bool:
    """Whether it is a name in lower case, the same after `*.` (two labels or more), or an address; with or without a
    port."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        return bool(bracket) and ":" in host and _is_plain_address(host) and (not rest or _is_port(rest))
    if _is_plain_address(text):
        return True
    host, colon, port = text.rpartition(":")
    if not colon:
        host = text
    elif not _is_port(f":{port}"):
        return False
    if _is_plain_address(host):
        return ":" not in host
    name = host.removeprefix("*.")
    labels = name.split(".")
    if not 0 < len(name) <= 253 or (name != host and len(labels) < 2):
        return False
    return all(map(_LABEL.fullmatch, labels)) and labels[-1][0].isalpha()


def _is_plain_address(text: str) -> bool:
    """Whether it is an address in its ordinary spelling, not in one that only some parsers accept."""
    if parse_address(text) is None or "%" in text or text.startswith("["):
        return False
    return ":" in text or re.fullmatch(r"(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}", text) is not None


def _is_port(text: str) -> bool:
    return text.startswith(":") and _PORT.fullmatch(text[1:]) is not None and int(text[1:]) < 65536


def verdict(said: Mapping[str, Any]) -> dict[str, Any]:
    """Checks every field of a verdict and returns it. Raises Broken."""
    action = said.get("action")
    if not isinstance(action, str) or action not in _FIELDS or said.get("t") != "verdict":
        raise Broken("bad verdict frame")
    if not _is_number(said.get("id"), 1, MAX_ID) or not set(said) <= {"t", "id", "action"} | _FIELDS[action]:
        raise Broken("bad verdict frame")
    if not {"allow": _is_allow, "deny": _is_deny, "need_body": _is_need_body}[action](said):
        raise Broken("bad verdict frame")
    return dict(said)


def _is_need_body(said: Mapping[str, Any]) -> bool:
    return _is_number(said.get("max"), 1, MAX_BODY)


def _is_deny(said: Mapping[str, Any]) -> bool:
    reason = said.get("reason", "-")
    fine = isinstance(reason, str) and 0 < len(reason.encode()) <= MAX_REASON and not _CONTROL.search(reason)
    return fine and _is_number(said.get("status"), 400, 599)


def _is_allow(said: Mapping[str, Any]) -> bool:
    headers, removed = said.get("setHeaders", {}), said.get("removeHeaders", [])
    if not isinstance(headers, dict) or not _are_texts(removed):
        return False
    if ("setHeaders" in said and not headers) or ("removeHeaders" in said and not removed):
        return False
    for name, values in headers.items():
        if not _is_name(name) or not _are_texts(values) or any(map(_CONTROL.search, values)):
            return False
        if (folded := fold(name)) in _FRAMING or folded in _CREDENTIALS:
            return False
    if not all(map(_is_name, removed)) or any(fold(name) in _FRAMING for name in removed):
        return False
    if len(removed) > MAX_NAMES or len(set(removed)) != len(removed) or sum(map(len, removed)) > MAX_BYTES:
        return False
    return headers_fit(headers) and _is_credential(said)


def _is_credential(said: Mapping[str, Any]) -> bool:
    if ("cred" in said) != ("credential" in said):
        return False
    kind, value = said.get("cred", "-"), said.get("credential", "-")
    return isinstance(kind, str) and kind != "" and isinstance(value, str) and bool(_CREDENTIAL.fullmatch(value))


def _is_name(text: str) -> bool:
    return _TOKEN.fullmatch(text) is not None and text == text.lower()


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_number(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


# -- headers


def headers_fit(headers: Headers) -> bool:
    """Whether a message may have that many fields. Each name counts once, and without a value as one value."""
    values = sum(max(1, len(one)) for one in headers.values())
    size = sum(len(name.encode()) + sum(len(one.encode()) for one in each) for name, each in headers.items())
    return values <= MAX_VALUES and size <= MAX_BYTES


def edits(said: Mapping[str, Any], host: str) -> tuple[Headers, set[str]]:
    """The fields that an allowing verdict sets, and the folded names of all fields that are removed before that."""
    headers: Headers = {name: list(values) for name, values in said.get("setHeaders", {}).items()}
    removed = {fold(name) for name in (*said.get("removeHeaders", ()), *headers)}
    if "credential" in said:
        removed.update(_CREDENTIALS)
        headers["authorization"] = [_placed(said["cred"], said["credential"], host)]
    return headers, removed


def _placed(kind: str, value: str, host: str) -> str:
    """The Authorization field for a credential. github.com accepts a token for git only as a password."""
    if kind == "github" and host == "github.com":
        return "Basic " + base64.b64encode(f"x-access-token:{value}".encode()).decode()
    return f"Bearer {value}"


def request_fields(
    method: str, host: str, port: int, target: str, pairs: list[tuple[str, str]], server_name: str | None
) -> dict[str, Any]:
    """A request as a decider sees it, without its number. Raises TooMuch."""
    path, _, query = target.partition("?")
    headers: Headers = {}
    for name, value in pairs:
        if not _TOKEN.fullmatch(name) or _CONTROL.search(value):
            raise TooMuch("a header field the decider cannot be asked about")
        headers.setdefault(name.lower(), []).append(value)
    named = headers.pop("host", [])
    if len(named) > 1:
        raise TooMuch("more than one Host header")
    if not headers_fit(headers):
        raise TooMuch("the request's headers are too large")
    said: dict[str, Any] = {"method": method, "host": host, "port": port, "hostHeader": "".join(named)}
    said |= {"sni": server_name or "", "path": path, "query": query, "headers": headers}
    if any(len(said[name].encode()) > MAX_TEXT for name in ("host", "hostHeader", "sni", "path")):
        raise TooMuch("the request's target is too large")
    said = {name: value for name, value in said.items() if value not in ("", {})}
    if len(frame({"t": "req", "id": MAX_ID, **said})) > MAX_FRAME:
        raise TooMuch("the request is too large for the decider")
    return said
