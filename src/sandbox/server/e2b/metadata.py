"""Metadata of files, stored as extended attributes `user.e2b.NAME` like E2B's own daemon does, so that it moves with
the file, and into forks and snapshots."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.client import Client
from sandbox.server.e2b.refusals import E2bRefusal, not_supported
from sandbox.server.reach import Reached

HEADER = "x-metadata-"
PREFIX = "user.e2b."
MOST = 64  # entries for one file
_KEY = re.compile(r"[a-z0-9!#$%&'*+\-.^_`|~]{1,200}")
_VALUE = re.compile(r"[\x20-\x7e]{0,4096}")
_WITHOUT = (errno.ENOTSUP, errno.ENOSYS, errno.EPERM, errno.EACCES)  # from file systems and engines without attributes


def asked(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The metadata in an upload's headers. Raises E2bRefusal."""
    found = {name.lower().removeprefix(HEADER): value for name, value in headers if name.lower().startswith(HEADER)}
    for key, value in found.items():
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise E2bRefusal(400, f"metadata {key[:40]!r}: a key is a word, and a value printable ASCII of up to 4096")
    if len(found) > MOST:
        raise E2bRefusal(400, f"a file has at most {MOST} metadata")
    return found


def replace(reached: Reached, path: str, wanted: Mapping[str, str]) -> None:
    """Replaces all metadata of a file. May block. Raises OSError, E2bRefusal."""
    if isinstance(reached.sandbox, Client):
        if wanted:
            raise not_supported("metadata of files in a sandbox of another program")
        return
    for key in of(reached, path).keys() - wanted.keys():
        reached.sandbox._file("set_attribute", path, name=(PREFIX + key).encode())
    try:
        for key, value in wanted.items():
            reached.sandbox._file("set_attribute", path, name=(PREFIX + key).encode(), value=value.encode())
    except OSError as problem:
        if problem.errno in (errno.ENOTSUP, errno.ENOSYS):
            raise not_supported(f"metadata of a file where {path} is") from None
        raise


def of(reached: Reached, path: str) -> dict[str, str]:
    """The metadata of one file. May block. Raises OSError."""
    return _readable(_attributes(reached, path, below=False))


def below(reached: Reached, directory: str) -> dict[str, dict[str, str]]:
    """The metadata of the files in a directory that have any, by name. May block. Raises OSError."""
    found = {os.fsdecode(name): _readable(pairs) for name, pairs in _attributes(reached, directory, below=True)}
    return {name: metadata for name, metadata in found.items() if metadata}


def _attributes(reached: Reached, path: str, *, below: bool) -> list[list[Any]]:
    if isinstance(reached.sandbox, Client):
        return []
    try:
        answer = reached.sandbox._file("attributes", path, prefix=PREFIX.encode(), below=below)
    except OSError as problem:
        if problem.errno in _WITHOUT:
            return []
        raise
    found: list[list[Any]] = answer["attributes"]
    return found


def _readable(pairs: list[list[bytes]]) -> dict[str, str]:
    """The attributes as metadata. Programs inside can set any attribute: what no upload could have set is left out."""
    found = {name.decode("latin-1").removeprefix(PREFIX): value.decode("latin-1") for name, value in pairs}
    right = {key: value for key, value in found.items() if _KEY.fullmatch(key) and _VALUE.fullmatch(value)}
    return dict(sorted(right.items())[:MOST])
