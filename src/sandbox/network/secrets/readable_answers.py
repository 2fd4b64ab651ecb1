"""Answers in which values can be found: whole, uncompressed, and in a charset that leaves ASCII unchanged.

From a host that a secret is or was for, we request nothing else and pass nothing else on. Other hosts, which have no
reason to send a value, may also use the compressions that we can read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandbox.errors import Denied
from sandbox.network.secrets.held_secret import RULE

if TYPE_CHECKING:
    from sandbox.network.http.headers import Headers
    from sandbox.network.http.message import Request, Response

_PARTS = ("Range", "If-Range", "A-IM")  # fields that ask for a part (A-IM: RFC 3229)
_CHARSET = re.compile(r"""charset\s*\*?=\s*["']?([^"';,\s]*)""", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_ASCII = bytes(range(0x21, 0x7F))


def ask_for_readable(headers: Headers, *, confided: bool) -> None:
    """Changes a request's `headers` so that values in the answer can be found."""
    if confided:
        headers.set("Accept-Encoding", "identity")
        for name in (*_PARTS, "Accept-Charset"):
            headers.remove(name)
        if "grpc-accept-encoding" in headers:
            headers.set("grpc-accept-encoding", "identity")
    elif "Accept-Encoding" in headers:
        asked = ",".join(headers.get_all("Accept-Encoding")).lower()
        headers.set("Accept-Encoding", ", ".join(one for one in ("gzip", "deflate") if one in asked) or "identity")


def refuse_unreadable(response: Response, request: Request) -> None:
    """Raises Denied for an answer, from a host that a secret is or was for, in which a value could not be found."""
    headers = response.headers
    # Without a range (`bytes */21`), the field only says how long the whole is.
    ranges = [one for one in headers.get_all("Content-Range") if "*/" not in one.replace(" ", "")]
    several = headers.media_type.endswith("byteranges")  # also Apache's `x-byteranges`
    if response.status in (206, 226) or ranges or several:
        raise Denied(
            RULE,
            "{host} answered with partial content ({status}), which could split a secret's value in two",
            host=request.host,
            status=response.status,
        )
    for kind in headers.get_all("Content-Type"):
        for name in _CHARSET.findall(kind):
            if name and not keeps_ascii(name):
                raise Denied(
                    RULE,
                    "{host} answered in the charset {name!r}, in which a secret's value could not be found",
                    host=request.host,
                    name=name[:40],
                )


def keeps_ascii(charset: str) -> bool:
    """Whether ASCII text is the same bytes in `charset`. False for an unknown charset."""
    if not _NAME.fullmatch(charset):
        return False
    try:
        return _ASCII.decode(charset) == _ASCII.decode("ascii")
    except (LookupError, UnicodeError):
        return False
