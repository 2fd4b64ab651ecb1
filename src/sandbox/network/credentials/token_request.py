"""A request to a token endpoint: what it asks for, and the one place in it where a refresh token belongs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlencode

from sandbox.network.credentials.token_answer import FORM

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 256 * 1024  # bytes of a request
LOGIN_GRANTS = ("authorization_code", "urn:ietf:params:oauth:grant-type:device_code")


class TokenRequest:
    """`grant` is what the request asks for, `refresh_token` what it sends for that. Both are empty when it cannot be
    read."""

    def __init__(self, kind: str, body: bytes) -> None:
        self._form = kind == FORM
        self._fields: dict[str, object] = {}
        try:
            if self._form:
                pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=100)
                once = len({name for name, _ in pairs}) == len(pairs)
                self._fields = dict(pairs) if once else {}
            elif kind.endswith("json"):
                found = json.loads(body.decode())
                self._fields = found if isinstance(found, dict) else {}
        except (ValueError, RecursionError):
            pass
        self.grant = self._text("grant_type", "grantType")
        if set(self._fields) == {"refreshToken"}:  # Kiro's own endpoint takes nothing else
            self.grant = "refresh_token"
        self.refresh_token = self._text("refresh_token", "refreshToken") if self.grant == "refresh_token" else ""

    def _text(self, *names: str) -> str:
        """A field in OAuth's spelling, or in that of AWS and others; empty when both are present."""
        found = [self._fields[name] for name in names if name in self._fields]
        return found[0] if len(found) == 1 and isinstance(found[0], str) else ""

    def written(self) -> bytes:
        """The request, rewritten exactly as it was understood."""
        if self._form:
            return urlencode([(name, str(value)) for name, value in self._fields.items()]).encode()
        return json.dumps(self._fields).encode()

    def with_value(self, body: bytes, placeholder: bytes, value: bytes) -> bytes | None:
        """`body`, as `written` wrote it, with the value; None when the placeholder also occurs elsewhere in it."""
        if body.count(placeholder) != 1:
            return None
        text = value.decode("ascii")
        spelled = quote(text, safe="") if self._form else json.dumps(text)[1:-1]
        return body.replace(placeholder, spelled.encode())


def same_path(target: str, paths: Iterable[str]) -> bool:
    """Whether some server may read `target` as one of `paths`. Only an exact match is given a refresh token, but the
    answers to all of them are rewritten."""
    return _normal(target) in {_normal(path) for path in paths}


def _normal(target: str) -> str:
    path = target.partition("?")[0]
    for _ in range(3):
        path = unquote(path)
    parts: list[str] = []
    for part in path.replace("\\", "/").lower().split("/"):
        part = part.partition(";")[0].strip("\0 \t")
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
