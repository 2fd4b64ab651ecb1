"""How a tenant hears "no": an ordinary HTTP answer that says what was refused, by which rule, and how to
allow it.

An agent reads this text. Said plainly, it stops retrying and tells its owner what to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.network.http.body import Whole
from sandbox.network.http.headers import Headers
from sandbox.network.http.message import Response

if TYPE_CHECKING:
    from sandbox.policy.decision import Decision


def denied(what: str, decision: Decision) -> Response:
    """403: the policy said no. `what` is the request in words, already free of secrets."""
    text = (
        f"Blocked by the sandbox: {what}\n"
        f"Reason: {decision.reason}\n"
        f"Rule: {decision.rule}\n"
        "Retrying will not help: only the sandbox's owner can change this rule.\n"
    )
    response = _plain(403, text)
    response.headers.add("X-Proxy-Error", "blocked-by-allowlist")
    response.phrase = phrase(decision)
    return response


def phrase(decision: Decision) -> bytes:
    """The refusal in one line: many clients print what stands beside the status, and nothing of the body."""
    text = f"Forbidden: blocked by the sandbox: {decision.reason}".encode("ascii", "backslashreplace")
    return bytes(one if 32 <= one < 127 else 63 for one in text[:400])


def unreadable(reason: str, status: int) -> Response:
    """4xx: the request could be understood in two ways, or in none."""
    response = _plain(status, f"Refused by the sandbox: {reason}\n")
    response.headers.add("X-Proxy-Error", "ambiguous-request")
    return response


def unreachable(host: str, reason: str) -> Response:
    """502: the host did not answer, or is not who it says it is."""
    response = _plain(502, f"The sandbox could not reach {host}: {reason}\n")
    response.headers.add("X-Proxy-Error", "upstream-failed")
    return response


def _plain(status: int, text: str) -> Response:
    data = printable(text).encode()
    pairs = [
        (b"Content-Type", b"text/plain; charset=utf-8"),
        (b"Content-Length", b"%d" % len(data)),
        (b"Cache-Control", b"no-store"),
    ]
    return Response(status, Headers(pairs), Whole(data))


def printable(text: str) -> str:
    """`text` with control characters escaped: parts of it came from inside and may end up on a terminal."""
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
