"""The messages of the file protocol, which connects a provider with the program that mounts it, over a stream.

    u32 length, little-endian | one CBOR map of that many bytes, in the subset of guest/protocol.md

A request has the fields `op path fh off sz data flags mode` and, since version 1, `id to set name`; an answer
`err stat data written fh entries` and `id flags target space names`. Absent means 0 or empty. `err` is 0 or a negative
errno. Paths and names are text, or bytes where they are not UTF-8; times are nanoseconds. The first request is HELLO
with the highest version in `fh`; the answer has the version that is used. Numbers of operations are never reused.
"""

from __future__ import annotations

import errno
import os
import socket
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError
from sandbox.guest import cbor
from sandbox.vfs.provider import PATH_MAX, DirEntry, FileInfo, Space, failure

if TYPE_CHECKING:
    from typing import Any

VERSION = 1
MOST_DATA = 1 << 20
MOST_FRAME = MOST_DATA + (1 << 16)
# What one answer to READDIR holds; `off` asks for the rest.
MOST_ENTRIES = 1024

_LENGTH = Struct("<I")


class ProviderOp(IntEnum):
    LOOKUP = 0
    GETATTR = 1
    SETATTR = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    MKDIR = 6
    UNLINK = 7
    RMDIR = 8
    RENAME = 9
    OPEN = 10
    RELEASE = 11
    READDIR = 12
    FSYNC = 13
    # The above are the first version's; what follows was added and keeps its number.
    HELLO = 14
    SYMLINK = 15
    READLINK = 16
    LINK = 17
    MKNOD = 18
    STATFS = 19
    GETXATTR = 20
    SETXATTR = 21
    LISTXATTR = 22
    REMOVEXATTR = 23
    FLUSH = 24


class BrokenFrame(SandboxError):
    """The other side broke the protocol. The connection ends."""


Message = dict[str, "Any"]


def send(stream: socket.socket, message: Message) -> None:
    """Sends one frame. Raises OSError when the other side is gone."""
    body = cbor.encode(message)
    stream.sendall(_LENGTH.pack(len(body)) + body)


def receive(stream: socket.socket) -> Message | None:
    """The next frame, or None at the end of the stream. Raises BrokenFrame. Allocates only what really arrives."""
    head = _exactly(stream, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if not 0 < length <= MOST_FRAME:
        raise BrokenFrame(f"a frame of {length} bytes")
    body = _exactly(stream, length)
    if body is None:
        raise BrokenFrame("the stream ended within a frame")
    return decode(body)


def decode(body: bytes) -> Message:
    """One frame's map. Raises BrokenFrame."""
    try:
        message = cbor.decode(body)
    except cbor.Malformed as problem:
        raise BrokenFrame(str(problem)) from None
    if not isinstance(message, dict):
        raise BrokenFrame("not a map")
    return message


def _exactly(stream: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = stream.recv(min(size - len(data), 1 << 18))
        if not part:
            if data:
                raise BrokenFrame("the stream ended within a frame")
            return None
        data += part
    return bytes(data)


# Fields, strictly read. Each raises BrokenFrame.


def number(message: Message, key: str, most: int = (1 << 63) - 1, least: int = 0) -> int:
    value = message.get(key, 0)
    if type(value) is not int or not least <= value <= most:
        raise BrokenFrame(f"{key} is not a number from {least} to {most}")
    return value


def name(message: Message, key: str) -> str:
    return _text(message.get(key, ""), key)


def data(message: Message, key: str = "data") -> bytes:
    value = message.get(key, b"")
    if type(value) is not bytes or len(value) > MOST_DATA:
        raise BrokenFrame(f"{key} is not at most {MOST_DATA} bytes")
    return value


def _text(value: object, key: str) -> str:
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    if not isinstance(value, str) or "\0" in value:
        raise BrokenFrame(f"{key} is not a name")
    return value


def packed_name(text: str) -> str | bytes:
    """Text if it is UTF-8, otherwise its bytes. Raises OSError, before anything is sent, if it cannot be a name."""
    if "\0" in text:
        raise failure(errno.EINVAL)
    if len(text) > PATH_MAX:
        raise failure(errno.ENAMETOOLONG)
    try:
        text.encode()
    except UnicodeEncodeError:
        try:
            return os.fsencode(text)
        except UnicodeEncodeError:
            raise failure(errno.EILSEQ) from None
    return text


_STAT = ("size", "mode", "mtime_ns", "atime_ns", "ctime_ns", "nlink", "uid", "gid", "ino")


def packed_stat(info: FileInfo) -> Message:
    return {key: getattr(info, key) for key in _STAT}


def stat(message: object) -> FileInfo:
    if not isinstance(message, dict):
        raise BrokenFrame("stat is not a map")
    values = {key: message.get(key, 0) for key in _STAT}
    if any(type(value) is not int or not -(1 << 63) <= value < 1 << 64 for value in values.values()):
        raise BrokenFrame("stat holds something that is no number")
    return FileInfo(**values)


def packed_entry(entry: DirEntry) -> Message:
    packed: Message = {"name": packed_name(entry.name)}
    if entry.info is not None:
        packed["stat"] = packed_stat(entry.info)
    return packed


def entry(message: object) -> DirEntry:
    if not isinstance(message, dict):
        raise BrokenFrame("an entry is not a map")
    return DirEntry(_text(message.get("name"), "name"), stat(message["stat"]) if "stat" in message else None)


def packed_space(space: Space) -> list[int]:
    return [space.total, space.free, space.files, space.files_free]


def space(message: object) -> Space:
    if not isinstance(message, list) or len(message) != 4 or any(type(one) is not int for one in message):
        raise BrokenFrame("space is not four numbers")
    return Space(*message)


def failure_number(problem: BaseException) -> int:
    """The `err` of an answer: a negative errno for what a provider raised, EIO if that was not an OSError."""
    known = isinstance(problem, OSError) and problem.errno is not None and 0 < problem.errno < 4096
    return -problem.errno if known else -errno.EIO  # type: ignore[attr-defined]
