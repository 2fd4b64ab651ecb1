"""Lines in, lines out: the only place that touches the two descriptors of a connection.

A line is at most `LINE_LIMIT` bytes. Whoever sends a longer one gets an error for it and is heard again from the next
line on; nothing beyond the limit is ever held in memory.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Iterator
from threading import Lock
from typing import Any

import msgspec

LINE_LIMIT = 256 * 2**20
CONTENT_LIMIT = LINE_LIMIT // 4 * 3 - 2**20  # bytes that fit a line as base64, with room for the rest of the message

_READ = 2**20
_ENCODE = 3 * 2**18  # a multiple of three: pieces of base64 may simply be joined


class TooLong:
    """Stands in for a line that was over the limit."""


def lines(descriptor: int, limit: int = LINE_LIMIT) -> Iterator[bytes | TooLong]:
    """Every line that comes, without its end, until the other side closes. A last line without an end counts."""
    held: list[bytes] = []
    size = 0  # of what is held; over the limit nothing is held any more, but still counted
    while piece := _read(descriptor):
        # To look first saves a copy: of a large file most pieces have no end in them.
        *ends, rest = piece.split(b"\n") if b"\n" in piece else (piece,)
        for end in ends:
            size += len(end)
            yield TooLong() if size > limit else b"".join((*held, end)) if held else end
            held, size = [], 0
        size += len(rest)
        if size > limit:
            held = []
        elif rest:
            held.append(rest)
    if size:
        yield TooLong() if size > limit else b"".join(held)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _READ)
    except BlockingIOError:
        _wait(descriptor, select.POLLIN)
        return _read(descriptor)
    except OSError:
        return b""  # a connection that was cut has ended


class Writer:
    """Sends whole lines, from any thread. After the other side is gone, sending quietly does nothing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = Lock()
        self._encoder = msgspec.json.Encoder()
        self.broken = False

    def send(self, message: dict[str, Any]) -> None:
        """One message. Bytes in it become base64."""
        try:
            line = self._encoder.encode(message)
        except UnicodeEncodeError:  # a name inside that is no UTF-8: a tenant's choice, and nobody's to suffer from
            line = self._encoder.encode(_readable(message))
        with self._lock:
            self._write(line)
            self._write(b"\n")

    def send_content(self, id: int | str, content: bytes, more: dict[str, Any]) -> None:
        """The answer of `read_file`, encoded piece by piece: a large file is never in memory twice."""
        head = b'{"jsonrpc":"2.0","id":' + self._encoder.encode(id) + b',"result":{"content":"'
        tail = b'"' + b"".join(
            b"," + self._encoder.encode(key) + b":" + self._encoder.encode(value) for key, value in more.items()
        )
        view = memoryview(content)
        with self._lock:
            self._write(head)
            for start in range(0, len(view), _ENCODE):
                quoted = self._encoder.encode(view[start : start + _ENCODE])  # a third faster than binascii
                self._write(memoryview(quoted)[1:-1])
            self._write(tail + b"}}\n")

    def close(self) -> None:
        """Nothing is sent from now on. Before the descriptor is closed: its number may at once be another's, and a late
        answer would go there. Whoever is sending must have been made to stop (shutdown)."""
        with self._lock:
            self.broken = True

    def hung_up(self) -> bool:
        """Whether nobody reads any more."""
        poll = select.poll()
        poll.register(self._descriptor, 0)
        return self.broken or bool(poll.poll(0))

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view and not self.broken:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # the other side shares its non-blocking pipe with us
                _wait(self._descriptor, select.POLLOUT)
            except OSError:
                self.broken = True
                return


def _readable(value: Any) -> Any:
    """The same with what is not UTF-8 replaced: JSON has no other text."""
    if isinstance(value, str):
        return os.fsencode(value).decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_readable(key): _readable(item) for key, item in value.items()}
    return [_readable(item) for item in value] if isinstance(value, list) else value


def widen(descriptor: int) -> None:
    """Makes room for a megabyte in a pipe: the usual 64 KiB halve the pace of large files. No pipe, no matter."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _READ)
    except OSError:
        pass


def _wait(descriptor: int, what: int) -> None:
    poll = select.poll()
    poll.register(descriptor, what)
    poll.poll()
