"""How a tenant is refused: by an ordinary HTTP response that says what was refused, by which rule, and how to allow it.

Agents read this text. When it is plain, they stop retrying and tell their owner what to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.network.http.body import Whole
from sandbox.network.http.headers import Headers
from sandbox.network.http.message import Response

if TYPE_CHECKING:
    from sandbox.policy.decision import Decision

PHRASES = {400: b"Bad Request", 403: b"Forbidden", 407: b"Proxy Authentication Required", 502: b"Bad Gateway"}


SRT = "Connection blocked by network allowlist"  # what people and agents who use srt look for


def denied(what: str, decision: Decision, *, as_srt: bool = False) -> Response:
    """403: the policy refuses `what`, which contains no secret value. `as_srt`: also in srt's words."""
    text = (
        f"Blocked by the sandbox: {what}\n"
        f"Reason: {decision.reason}\n"
        f"Rule: {decision.rule}\n"
        "Retrying will not help: only the sandbox's owner can change this rule.\n"
    )
    text, told = (f"{SRT}\n{text}", SRT) if as_srt else (text, "blocked by the sandbox")
    return _plain(403, text, "blocked-by-allowlist", phrase(decision, told), code=_code(decision.rule))


def _code(rule: str) -> str:
    """What refused, in one word, for programs; the same words as `srt proxy` uses."""
    if rule.startswith(("network.block_private_ips", "network.intranet")):
        return "address_not_allowed"
    return "opaque_tunnel" if rule == "network.intercept" else "host_not_allowed"


def refused_with(status: int, reason: str, code: str) -> Response:
    """A refusal with a status and a reason that somebody else chose."""
    return _plain(status, f"{reason}\n", "blocked-by-sandbox-runtime", code=code)


def phrase(decision: Decision, told: str = "blocked by the sandbox") -> bytes:
    """The refusal as a reason phrase: many clients print only that and not the body."""
    text = f"Forbidden: {told}: {decision.reason}".encode("ascii", "backslashreplace")
    return bytes(one if 32 <= one < 127 else 63 for one in text[:400])


def unreadable(reason: str, status: int) -> Response:
    """4xx: the request is malformed or ambiguous."""
    code = "misdirected" if status == 421 else "bad_request"
    return _plain(status, f"Refused by the sandbox: {reason}\n", "ambiguous-request", code=code)


def unreachable(host: str, reason: str) -> Response:
    """502: the host did not answer, or its certificate is not valid."""
    return _plain(502, f"The sandbox could not reach {host}: {reason}\n", "upstream-failed")


def plain_bytes(response: Response) -> bytes:
    """One of the above as an HTTP/1.1 message that ends its connection."""
    assert isinstance(response.stream, Whole)
    words = response.phrase or PHRASES[response.status]
    fields = [*response.headers.pairs, (b"Connection", b"close")]
    head = b"".join(b"%s: %s\r\n" % pair for pair in fields)
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (response.status, words, head, response.stream.data)


def proxy_error(status: int, text: str) -> Response:
    """The answer to a client of the explicit proxy: 400 or 407."""
    return _plain(status, text, "proxy", code="bad_request" if status == 400 else "")


def _plain(status: int, text: str, error: str, words: bytes = b"", code: str = "") -> Response:
    data = printable(text).encode()
    pairs = [
        (b"Content-Type", b"text/plain; charset=utf-8"),
        (b"Content-Length", b"%d" % len(data)),
        (b"Cache-Control", b"no-store"),
        (b"X-Proxy-Error", error.encode()),
    ]
    if code:
        pairs.append((b"X-Deny-Reason", code.encode()))
    response = Response(status, Headers(pairs), Whole(data))
    response.phrase = words
    return response


def printable(text: str) -> str:
    """`text` with control characters escaped: parts of it come from a tenant and may end up on a terminal."""
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
