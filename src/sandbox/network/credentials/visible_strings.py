"""Which strings of a credential file tenants may see, and which part of a URL is its token."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from sandbox.config.variables import secret_value, secret_word
from sandbox.network.credentials.token_shapes import looks_like_token
from sandbox.network.secrets.field_paths import keys_of, matches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox.network.secrets.field_paths import Keys

# As programs read it: the last `@` before the path ends the name and password.
_URL = re.compile(r"([a-z][a-z0-9+.-]*://)(?:([^/\s?#]*)@)?([^/\s?#@]*)((?:[/?#]\S*)?)", re.IGNORECASE)
_NO_PASSWORD = ("", "x-oauth-basic")  # the password when the token is sent as the name
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*[?]?\}")  # to a variable, as in an .npmrc
_KEY_IN_PATH = re.compile(r"[A-Za-z0-9]{16,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_KEY = re.compile(r"[A-Za-z0-9]{32,}")


class Parted(NamedTuple):
    """A URL with a token in it. `before` and `after` are not secret."""

    before: str
    token: str
    after: str
    host: str


def parted(value: str) -> Parted | None:
    """The token in a URL and its host; None when `value` is not a URL, has no token, or may have more than one."""
    url = _URL.fullmatch(value)
    if url is None or not url[2] or not url[3] or _has_key(url[4]):
        return None
    name, colon, password = url[2].partition(":")
    if password in _NO_PASSWORD:
        return Parted(url[1], unquote(name), f"{colon}{password}@{url[3]}{url[4]}", url[3].lower())
    if suspect(unquote(name)):
        return None
    return Parted(f"{url[1]}{name}:", unquote(password), f"@{url[3]}{url[4]}", url[3].lower())


def is_address(value: str) -> bool:
    """Whether `value` is a URL that holds nothing secret: no name, no password, and no part that may be a key."""
    url = _URL.fullmatch(value)
    return url is not None and url[2] is None and not _has_key(url[4])


def may_be_seen(keys: Keys, value: str, kept: Iterable[str]) -> bool:
    """Whether tenants may see a string of the file that is no token. `kept` are the paths that its entry names."""
    if value in ("", "true", "false") or is_reference(value):
        return True
    path = next((one for one in kept if matches(one, keys)), None)
    if path is None or any(suspect(word) for word in value.split()):
        return False
    # A wildcard also matches keys that its author did not know: those that are named like a secret stay hidden.
    name = keys[-1].lower().replace("author", "")
    return "*" not in keys_of(path)[-1] or not (secret_word(name) or "auth" in name)


def is_reference(value: str) -> bool:
    """Whether `value` is only a reference to a variable, which the program looks up."""
    return _REFERENCE.fullmatch(value) is not None


def has_no_token(value: str, name: str, kind: str) -> bool:
    """Whether `value` has no token although the entry says that there may be one: it is empty, a reference to a
    variable, or the address of a server that asks for no password."""
    if not value or is_reference(value):
        return True
    return kind == "password" and name.lower().endswith("url") and is_address(value)


def suspect(word: str) -> bool:
    """Whether a word of a string that tenants may see nevertheless looks like a token, or begins a comment."""
    return (
        secret_value(word)
        or looks_like_token(word)
        or word[:1] in ("#", ";")
        or ("://" in word and not is_address(word))
        or any(_mixed(run) for run in _KEY.findall(word))
    )


def _has_key(path: str) -> bool:
    parts = re.split(r"[/?#&=;]", unquote(path))
    return any(looks_like_token(one) or any(map(_mixed, _KEY_IN_PATH.findall(one))) for one in parts)


def _mixed(run: str) -> bool:
    """Whether it has both letters and digits, as no ordinary word has."""
    return any(one.isdigit() for one in run) and any(one.isalpha() for one in run)
