"""Checks whether git's index names files where git itself would never put one.

`git restore .` writes every file that the index names and does not check the names, because git itself refuses to add
`.git/hooks/pre-commit` or `../../.bashrc` to an index. But a tenant can write the index without git.

It is read as git's `read-cache.c` reads it, in all versions of the format. The table of blocks (`IEOT`) lets git start
at places other than the first entry, so it must agree with the entries.
"""

from __future__ import annotations

import os
import stat
from array import array
from struct import error, unpack_from

from sandbox.guards.git_directories import read_config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 1 << 28
LONGEST = 4096  # bytes of a name: no file can have a longer one
TIMES = 40  # bytes of an entry before its hash: times, device, mode, owner, size
LENGTH, EXTENDED = 0x0FFF, 0x4000  # in its flags
NEVER = frozenset((b"", b".", b"..", b".git"))


class Odd(Exception):
    """git would not write this."""


def leads_astray(index: str, config: str) -> bool:
    """Whether this index would make the host's git write outside its work tree.

    `config` is the file that says by which hash the repository names objects.
    """
    try:
        data = _whole(index)
    except OSError:
        return False  # it does not exist, or git cannot read it either
    if data is None:
        return True
    if data[:4] != b"DIRC" or len(data) < 12 or not 2 <= unpack_from(">I", data, 4)[0] <= 4:
        return False  # git refuses it
    try:
        _check(data, _hash_length(config))
    except (Odd, IndexError, ValueError, error):
        return True
    return False


def indexes(repository: str) -> list[str]:
    """The names of a repository's index and of the files that a split one shares."""
    try:
        names = os.listdir(repository)
    except OSError:
        return []
    return [name for name in names if is_index(name)]


def is_index(name: str) -> bool:
    """Whether a file of this name in a repository's directory is an index."""
    return name == "index" or name.startswith("sharedindex.")


def _plain(name: bytes) -> bool:
    parts = name.split(b"\0", 1)[0].lower().split(b"/")
    if parts[-1] == b"":
        parts.pop()  # a whole directory in a sparse index; nothing at all in a split one
    return NEVER.isdisjoint(parts)


def _check(data: bytes, hash_length: int) -> None:
    """Raises Odd at a name that git would not write. Keeps none: in version 4 a small index can have long ones."""
    version, count = unpack_from(">II", data, 4)
    at, before = 12, b""
    starts = array("Q")
    for _ in range(count):
        starts.append(at)
        name = at + TIMES + hash_length + 2
        (flags,) = unpack_from(">H", data, name - 2)
        if flags & EXTENDED:
            name += 2
        length = flags & LENGTH
        copied = 0
        if version == 4:
            dropped, name = _number(data, name)
            if dropped > len(before):
                raise Odd
            copied = len(before) - dropped
        if length == LENGTH:
            length = copied + data.index(b"\0", name) - name
        end = name + length - copied
        if end < name or end >= len(data):
            raise Odd
        if copied + end - name > LONGEST:
            raise Odd
        before = before[:copied] + data[name:end]
        if not _plain(before[before.rfind(b"/", 0, copied) + 1 :]):  # what is copied has been checked
            raise Odd
        at = end + 1 if version == 4 else at + ((name - at + length + 8) & ~7)
    _agree(data, at, len(data) - hash_length, starts)


def _agree(data: bytes, at: int, end: int, starts: Sequence[int]) -> None:
    """Raises Odd if the extensions after the entries do not end where the file ends, or describe other entries."""
    first = at
    while at < end:
        kind, size = data[at : at + 4], unpack_from(">I", data, at + 4)[0]
        body = data[at + 8 : at + 8 + size]
        if kind == b"EOIE" and unpack_from(">I", body)[0] != first:
            raise Odd
        if kind == b"IEOT":
            number = 0
            for block in range(4, size - 7, 8):
                offset, count = unpack_from(">II", body, block)
                if number >= len(starts) or starts[number] != offset:
                    raise Odd
                number += count
            if number != len(starts):
                raise Odd
        at += 8 + size
    if at != end:
        raise Odd


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length number, and the offset after it."""
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = ((value + 1) << 7) + (data[at] & 127)
        if value > MOST:
            raise Odd
    return value, at + 1


def _hash_length(config: str) -> int:
    settings = dict(read_config(config) or ())
    return 32 if settings.get("extensions.objectformat") == "sha256" else 20


def _whole(path: str) -> bytes | None:
    """A regular file's bytes; None when there are too many. Raises OSError. Never blocks."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise OSError("not a file")
        return None if info.st_size > MOST else file.read(MOST)
