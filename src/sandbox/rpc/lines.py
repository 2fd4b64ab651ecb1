"""Lines in, lines out: the only place that touches the two descriptors of a connection.

A line has at most `LINE_LIMIT` bytes. A longer one is an error, and reading goes on with the next line. Neither bytes
beyond the limit nor bytes for which the budget has no room are ever held in memory.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from sandbox.rpc.budget import Hold

LINE_LIMIT = 64 * 2**20  # of a request
ANSWER_LIMIT = 256 * 2**20  # of an answer: `exec` may have asked for 64 MiB of output twice, and base64 adds a third
CONTENT_LIMIT = LINE_LIMIT // 4 * 3 - 2**20  # bytes that fit a line as base64, with room for the rest of the message

_READ = 2**20
_ENCODE = 3 * 2**18  # a multiple of three: pieces of base64 may simply be joined


class TooLong:
    """Stands in for a line that was over the limit."""


class NoRoom:
    """Stands in for a line that came while too much else was held."""


Line = bytes | bytearray


def lines(
    source: int | Callable[[], bytes], limit: int = LINE_LIMIT, hold: Hold | None = None, wake: int | None = None
) -> Iterator[Line | TooLong | NoRoom]:
    """Yields every line, without its newline, until the other side closes or `wake` is readable. The last line needs no
    newline. `source` is a descriptor, or a function that returns the next piece, and b"" at the end.

    A line that takes several reads is charged to `hold`'s budget as it grows. The charge is released when the caller
    asks for the next line.
    """
    line, size, refused = bytearray(), 0, False  # a refused line is counted, not held
    while piece := _read(source, wake) if isinstance(source, int) else source():
        # Looking first saves a copy: most pieces of a large file contain no newline.
        *ends, rest = piece.split(b"\n") if b"\n" in piece else (piece,)
        for end in ends:
            size += len(end)
            if size > limit:
                yield TooLong()
            elif refused or (line and not _held(hold, len(end))):
                yield NoRoom()
            elif line:
                line += end
                yield line
            else:
                yield end
            line, size, refused = bytearray(), 0, False
            if hold is not None:
                hold.release()
        size += len(rest)
        if size <= limit and not refused and (not rest or _held(hold, len(rest))):
            line += rest
        else:
            line, refused = bytearray(), True
            if hold is not None:
                hold.release()
    if size:
        yield TooLong() if size > limit else NoRoom() if refused else line


def _held(hold: Hold | None, size: int) -> bool:
    return hold is None or hold.grow(size)


def _read(descriptor: int, wake: int | None) -> bytes:
    try:
        if wake is not None and _wait(descriptor, select.POLLIN, wake):
            return b""
        return os.read(descriptor, _READ)
    except BlockingIOError:
        _wait(descriptor, select.POLLIN)
        return _read(descriptor, wake)
    except OSError:
        return b""  # for instance, the connection was reset


class Writer:
    """Sends whole lines, from any thread. When the other side is gone, sending does nothing."""

    def __init__(self, sink: int | Callable[[memoryview], int], descriptor: int = -1) -> None:
        """`sink` is a descriptor, or a function that returns how many bytes of a piece it took, and raises OSError at
        the end. With a function, `descriptor` is the connection's."""
        self._descriptor = sink if isinstance(sink, int) else descriptor
        # TCP tells its end only to who asks. The other side of a pipe may close one half, and wait for the answers.
        self._hang_ups = 0 if isinstance(sink, int) else getattr(select, "POLLRDHUP", 0)
        self._put = partial(os.write, sink) if isinstance(sink, int) else sink
        self._lock = Lock()
        self._encoder = msgspec.json.Encoder(enc_hook=str)  # a Message is text
        self.broken = False

    def send(self, message: dict[str, Any]) -> None:
        """One message. Bytes in it become base64."""
        try:
            line = self._encoder.encode(message)
        except UnicodeEncodeError:  # a name inside that is not UTF-8, which a tenant may choose
            line = self._encoder.encode(_readable(message))
        with self._lock:
            if len(line) < _ENCODE:
                self._write(line + b"\n")  # once, so that the other side wakes up once
            else:
                self._write(line)
                self._write(b"\n")

    def send_content(self, id: int | str, content: bytes, more: dict[str, Any]) -> None:
        """Sends the answer of `read_file`, encoded piece by piece: a large file is never in memory twice."""
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
        """Stops sending. Call this before closing the descriptor: its number may be reused at once, and a late answer
        would go there. Stop a thread that is sending first (with `shutdown`)."""
        with self._lock:
            self.broken = True

    def hung_up(self) -> bool:
        """Whether the other side has closed its end."""
        poll = select.poll()
        poll.register(self._descriptor, self._hang_ups)
        return self.broken or bool(poll.poll(0))

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view and not self.broken:
            try:
                view = view[self._put(view) :]
            except BlockingIOError:  # the other side made our shared pipe non-blocking
                _wait(self._descriptor, select.POLLOUT)
            except OSError:
                self.broken = True
                return


def _readable(value: Any) -> Any:
    """The same value with everything replaced that is not UTF-8, because JSON cannot hold it."""
    if isinstance(value, str):
        return os.fsencode(value).decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_readable(key): _readable(item) for key, item in value.items()}
    return [_readable(item) for item in value] if isinstance(value, list) else value


def widen(descriptor: int) -> None:
    """Enlarges a pipe to a megabyte: with 64 KiB large files take twice as long. Does nothing to other files."""
    if sys.platform == "linux":
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _READ)
        except OSError:
            pass


def _wait(descriptor: int, what: int, wake: int | None = None) -> bool:
    """Waits until the descriptor is ready. Returns True when `wake` became readable."""
    poll = select.poll()
    poll.register(descriptor, what)
    if wake is not None:
        poll.register(wake, select.POLLIN)
    return any(ready == wake for ready, _ in poll.poll())
