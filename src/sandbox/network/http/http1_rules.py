"""What makes an HTTP/1.1 message ambiguous. Such a message is refused.

h11 is lenient where a proxy must not be: messages that two programs read differently are used to smuggle requests.
`refuse_ambiguous_head` checks the bytes before h11 parses them; the other functions check the fields afterwards. Pure
functions.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

from sandbox.network.http.message import BadMessage
from sandbox.policy.hosts import InvalidHost, canonical_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandbox.network.http.headers import Pair

MAX_LINE = 64 * 1024
MAX_HEAD = 2 * MAX_LINE  # the longest request line, and as much again for fields

_HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade", b"transfer-encoding"))
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_METHOD = re.compile(_TOKEN)
_REQUEST_LINE = re.compile(_TOKEN + rb" [\x21-\x7e]+ HTTP/1\.[01]\r\n")
# A line feed without its carriage return, the reverse, NUL, a folded line, or a space before the colon.
_AMBIGUOUS = re.compile(rb"(?<!\r)\n|\r(?!\n)|\x00|\r\n[ \t]|\r\n[^:\r\n]*[ \t]:")


def refuse_no_request(data: bytes) -> None:
    """Raises BadMessage when `data`, perhaps incomplete, cannot be the beginning of a request."""
    if len(data) > MAX_HEAD or (b"\n" in data and not _REQUEST_LINE.match(data)):
        raise _bad_beginning(data)


def _bad_beginning(data: bytes) -> BadMessage:
    if len(data) > MAX_HEAD:
        return BadMessage("the request's head is larger than 128 KiB", 431)
    return BadMessage("the request line is malformed")


def no_connect() -> BadMessage:
    """The refusal of CONNECT, which would turn an intercepted connection into a tunnel."""
    return BadMessage("CONNECT is not allowed in an intercepted connection", 405)


def refuse_ambiguous_head(head: bytes) -> None:
    """Raises BadMessage for a request head that can be split into lines in two ways, or whose host or body length is
    ambiguous."""
    line = _REQUEST_LINE.match(head)
    if not line or len(head) > MAX_HEAD:
        raise _bad_beginning(head)
    if len(line.group()) > MAX_LINE + 2:
        raise BadMessage("the request line is longer than 64 KiB", 414)
    if _AMBIGUOUS.search(head):
        raise BadMessage("a bare CR or LF, a folded line or a NUL in the head")
    # Counted here because h11 merges two equal lengths; others take the first, or the last.
    fields = head.lower()
    if b"\r\ntransfer_encoding:" in fields or b"\r\ncontent_length:" in fields:
        raise BadMessage("Transfer_Encoding or Content_Length, which only some servers read")
    if fields.count(b"\r\nhost:") > 1:
        raise BadMessage("more than one Host")
    codings = fields.count(b"\r\ntransfer-encoding:")
    if fields.count(b"\r\ncontent-length:") + codings > 1:
        raise BadMessage("more than one of Content-Length and Transfer-Encoding")
    if codings and line.group().endswith(b"1.0\r\n"):
        raise BadMessage("Transfer-Encoding in HTTP/1.0")


def refuse_odd_method(method: bytes) -> None:
    """Raises BadMessage for a method that is no word. HTTP/2 has no request line, but many servers write one for the
    server behind them: there `POST /admin?` as the method of `/` is a request for another path."""
    if not _METHOD.fullmatch(method):
        raise BadMessage("the request's method is invalid")


def refuse_odd_target(target: str) -> None:
    """Raises BadMessage for a target that servers read in several ways. Rules judge exactly what is sent on, so it must
    not contain a character where some reader stops."""
    if any(not "!" <= one <= "~" for one in target):
        raise BadMessage("a control character or a space in the request's target")
    if "#" in target:
        raise BadMessage("a '#' in the request's target")
    if "\\" in target.partition("?")[0]:
        raise BadMessage("a backslash in the request's path")


def _dashed(name: bytes) -> bytes:
    """A field's name as the most lenient servers read it: those modelled on CGI (WSGI, PHP) treat `_` as `-`."""
    return name.lower().replace(b"_", b"-")


def refuse_other_host(host: bytes, expected: str, port: int) -> None:
    """Raises BadMessage unless `host` (a Host field or :authority) names the host this connection is for."""
    text = host.decode("latin-1")
    name, colon, number = text.rpartition(":")
    if not colon or "]" in number:
        name, number = text, ""
    try:
        if name != expected and canonical_host(name.removeprefix("[").removesuffix("]")) != expected:
            raise BadMessage(f"the request is for {text[:260]!r}, the connection for {expected!r}", 421)
    except InvalidHost as problem:
        raise BadMessage(f"Host: {problem}") from None
    # A missing port is harmless: rules and secrets use the connection's own port.
    if number and number != str(port):
        raise BadMessage(f"the request is for port {number[:8]!r}, the connection for {port}", 421)


def origin_form(method: str, target: str, host: bytes | None, scheme: str) -> tuple[str, bytes | None]:
    """A request's target as a path, and the host it names. Raises BadMessage when Host names another."""
    refuse_odd_target(target)
    if target.startswith("/") or (target == "*" and method == "OPTIONS"):
        return target, host
    if method == "CONNECT":
        raise no_connect()
    named, mark, rest = target.partition("://")
    at = min((rest.find(sign) for sign in "/?" if sign in rest), default=len(rest))
    authority, path = rest[:at], rest[at:]
    if not mark or named.lower() != scheme or "@" in authority or "#" in target:
        raise BadMessage("the request's target is neither a path nor a URL of this host")
    if host is not None and host.lower() != authority.lower().encode():
        raise BadMessage("the request's target names another host than Host")
    return (path if path.startswith("/") else f"/{path}"), authority.encode()


def end_to_end(pairs: list[Pair]) -> list[Pair]:
    """The end-to-end fields, without those about this connection."""
    named: set[bytes] = set()
    for name, value in pairs:
        if name.lower() == b"connection":
            named.update(token.strip().lower() for token in value.split(b","))
    return [pair for pair in pairs if (low := pair[0].lower()) not in _HOP_BY_HOP and low not in named]


def answer_trailers(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """The trailers of a response that are passed on: all but those about framing. A request's trailers are inspected
    like its body but never sent: rules, hooks and secrets judged its head, and some servers add trailers to that."""
    return tuple(pair for pair in end_to_end(list(pairs)) if pair[0].lower() != b"content-length")


# Fields that many servers use in place of the request's method or path.
_METHODS = frozenset((b"x-http-method-override", b"x-http-method", b"x-method-override"))
_TARGETS = frozenset((b"x-original-url", b"x-rewrite-url"))


def readings(method: str, target: str, pairs: Iterable[Pair]) -> Iterator[tuple[str, str]]:
    """Every method and target that a server may read in a request."""
    methods, targets = [method], [target]
    for name, value in pairs:
        if (low := _dashed(name)) in _METHODS:
            methods.append(value.decode("latin-1").strip())
        elif low in _TARGETS:
            targets.append(value.decode("latin-1").strip())
    return product(methods, targets)


def asks_for_websocket(pairs: Iterable[Pair]) -> bool:
    """Whether a request asks for a WebSocket. Every other upgrade is removed."""
    fields = {name.lower(): value.lower() for name, value in pairs}
    return fields.get(b"upgrade") == b"websocket" and b"upgrade" in fields.get(b"connection", b"")
