"""Rewrites a token endpoint's answer: everything in it that may be a token is replaced by a placeholder.

This does not depend on a list of token names: every string may be a token unless it is known to be harmless by its name
(what OAuth defines, and what the entry keeps) and by its shape. An error's text is kept unless it looks like a token.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from sandbox.config.variables import secret_value, secret_word
from sandbox.errors import Denied
from sandbox.network.credentials.token_shapes import looks_like_token
from sandbox.network.secrets.field_paths import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox.network.secrets.field_paths import Keys

    StandIn = Callable[[Keys, str], str]

RULE = "credentials"
MOST = 1024 * 1024  # bytes of an answer
MOST_TOKENS = 32  # in one answer
SHORT = 8  # a string with fewer characters is not a token
_DEEPEST = 32
_HARMLESS = frozenset(("token_type", "scope", "issued_token_type", "error", "error_description", "error_uri"))
_TIME = re.compile(r"\d{1,13}|\d{4}-\d\d-\d\d[T ][0-9:.]{4,18}(?:Z|[+-]\d\d:?\d\d)?")
_RUN = re.compile(r"[A-Za-z0-9_.~+/=-]{32,}")
FORM = "application/x-www-form-urlencoded"
_CAMEL = {
    "accessToken": "access_token",
    "refreshToken": "refresh_token",
    "idToken": "id_token",
    "expiresIn": "expires_in",
}


def rewritten(body: bytes, kind: str, status: int, keep: Sequence[str], stand_in: StandIn) -> bytes:
    """`body`, of the media type `kind`, with `stand_in(keys, value)` for each token. Unchanged when it has none.

    Raises Denied for a successful answer that cannot be read, or is too large."""
    if len(body) > MOST:
        raise _unreadable()
    if not body.strip():
        return body
    judge = _Judge(status, keep, stand_in)
    try:
        data = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return _other(body, kind, status, judge)
    new = judge.changed(data, (), 0)
    # Also rewritten when a name occurs twice, so that the tenant reads what we have read.
    return json.dumps(new).encode() if judge.found or _ambiguous(data) else body


def _other(body: bytes, kind: str, status: int, judge: _Judge) -> bytes:
    """A form, or text that is not JSON."""
    if kind == FORM:
        try:
            pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=100)
        except ValueError:
            raise _unreadable() from None
        new = [(name, judge.string((name,), value)) for name, value in pairs]
        judge.name_of(name for name, _ in pairs)
        return urlencode(new).encode() if judge.found else body
    if 200 <= status < 400:
        raise _unreadable()
    text = body.decode("latin-1")
    return _RUN.sub(lambda run: judge.string(("",), run[0]), text).encode("latin-1")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it was written, with repeated names."""


class _Judge:
    """Which strings of one answer are tokens."""

    def __init__(self, status: int, keep: Sequence[str], stand_in: StandIn) -> None:
        self._failed = status >= 400
        self._keep = keep
        self._stand_in = stand_in
        self.found = 0

    def changed(self, data: Any, keys: Keys, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _unreadable()
        if isinstance(data, _Pairs):
            self.name_of(name for name, _ in data)
            return {name: self.changed(value, (*keys, name), depth + 1) for name, value in data}
        if isinstance(data, list):
            return [self.changed(value, (*keys, str(at)), depth + 1) for at, value in enumerate(data)]
        return self.string(keys, data) if isinstance(data, str) else data

    def name_of(self, names: Any) -> None:
        """Refuses a token used as a name. It could not be replaced: programs would not find the names they look for."""
        if any(_token_like(name) for name in names):
            raise _unreadable()

    def string(self, keys: Keys, value: str) -> str:
        """`value`, or its placeholder."""
        if len(value) < SHORT or _TIME.fullmatch(value):
            return value
        name = next((key for key in reversed(keys) if not key.isdigit()), "")
        known = name in _HARMLESS or any(matches(path, keys) for path in self._keep)
        if self._failed and not known:
            known = not secret_word(name)
        if known and not any(_token_like(word) for word in value.split()):
            return value
        self.found += 1
        if self.found > MOST_TOKENS:
            raise _unreadable()
        return self._stand_in(keys, value)


def _token_like(word: str) -> bool:
    """Whether it looks like a token, whatever its name: a known prefix, a JWT, or a long run of letters and digits."""
    if looks_like_token(word) or (secret_value(word) and len(word) >= 20):
        return True
    if "://" in word:
        return False  # a scope, or the address of a page about an error
    run = max(_RUN.findall(word), key=len, default="")
    return bool(run) and any(one.isdigit() for one in run) and any(one.isalpha() for one in run)


def _ambiguous(data: Any) -> bool:
    if isinstance(data, _Pairs):
        return len({name for name, _ in data}) != len(data) or any(_ambiguous(value) for _, value in data)
    return isinstance(data, list) and any(_ambiguous(value) for value in data)


def _unreadable() -> Denied:
    return Denied(RULE, "the token endpoint's answer cannot be inspected")


def top_level(body: bytes, kind: str) -> dict[str, Any]:
    """The top-level fields of an answer; empty when it cannot be read. Of several with one name, the last counts."""
    try:
        if kind == FORM:
            return dict(parse_qsl(body.decode("ascii"), max_num_fields=100))
        found = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return {}
    return _in_oauths_words(found) if isinstance(found, dict) else {}


def _in_oauths_words(said: dict[str, Any]) -> dict[str, Any]:
    """Adds `access_token` for `accessToken`, as AWS and others write it, unless both are there."""
    more = {_CAMEL[name]: value for name, value in said.items() if name in _CAMEL and _CAMEL[name] not in said}
    return {**said, **more}
