"""Digests, and files that are checked against their digests while they are read."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, BinaryIO

from sandbox.errors import ImageError

if TYPE_CHECKING:
    import os

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def checked(digest: object) -> str:
    """`digest`, if it is a valid sha256 digest. Raises ImageError otherwise."""
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ImageError("{digest} is not a sha256 digest", digest=ascii(digest)[:100])
    return digest


def of(data: bytes) -> str:
    """The digest of some bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def require(data: bytes, digest: str) -> bytes:
    """`data`, if it has this digest. Raises ImageError."""
    if of(data) != digest:
        raise ImageError("the content received for {digest} has another digest", digest=digest)
    return data


class Verified:
    """Part of a file that is checked while it is read: at its end, `read` raises ImageError if the size or digest is
    wrong. Whoever has read to the end has the right content."""

    def __init__(self, file: BinaryIO, digest: str, size: int, at: int = 0) -> None:
        self._file = file
        self._expected = digest
        self._left = size
        self._hash = hashlib.sha256()
        file.seek(at)

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._file.read(wanted) if wanted else b""
        self._left -= len(data)
        self._hash.update(data)
        if not data and size and (self._left or f"sha256:{self._hash.hexdigest()}" != self._expected):
            raise ImageError("the content received for {digest} has another digest", digest=self._expected)
        return data

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Verified:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def of_file(path: str | os.PathLike[str]) -> str:
    """The digest of a whole file."""
    with open(path, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
