"""Paths of fields in a credential file: keys separated by dots, as the configuration writes them."""

from __future__ import annotations

import re

from sandbox.config.variables import glob

Keys = tuple[str, ...]
_PART = re.compile(r"((?:[^.\\]|\\.)*)(?:\.|\Z)", re.DOTALL)
_HOST = re.compile(r"(?:[a-z]+:)?(?://)?([^/]+)", re.IGNORECASE)


def keys_of(path: str) -> Keys:
    """The keys of a path: `a.b`; `a\\.b` is one key with a dot in it."""
    found: list[str] = []
    at = 0
    while at <= len(path):
        match = _PART.match(path, at)
        if match is None:  # a lone backslash at the end
            return (*found, path[at:])
        found.append(re.sub(r"\\(.)", r"\1", match[1]))
        at = match.end()
        if not match[0].endswith("."):
            break
    return tuple(found)


def written(keys: Keys) -> str:
    """`keys` as a path."""
    return ".".join(re.sub(r"([.\\])", r"\\\1", key) for key in keys)


def has_wildcard(path: str) -> bool:
    """Whether a path may stand for several fields."""
    return "*" in path


def matches(path: str, keys: Keys) -> bool:
    """Whether `keys` is a field that `path` stands for."""
    wanted = keys_of(path)
    return len(wanted) == len(keys) and all(glob(one, key) for one, key in zip(wanted, keys, strict=True))


def host_in(path: str, keys: Keys) -> str | None:
    """The host that the first wildcard of `path` stands for in `keys`: `github.com`, `//registry.npmjs.org/:_auth`."""
    for one, key in zip(keys_of(path), keys, strict=False):
        if "*" in one:
            match = _HOST.match(key)
            host = (match[1] if match else "").lower()
            # What follows the host in an .npmrc's key: `//host/:_authToken`, without a path `//host:_authToken`.
            return re.sub(r":[^0-9:].*\Z", "", host) or None
    return None
