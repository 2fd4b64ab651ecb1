"""A command that runs in another process's sandbox."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.process_view import ProcessView
from sandbox.result import Chunk, ExecResult
from sandbox.rpc import errors
from sandbox.rpc.connection import AnswerStream, Connection
from sandbox.rpc.errors import RpcError

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 2**19  # bytes of output that may be in transit to a reader, or waiting for it
_ENOUGH = WINDOW // 4  # credit is granted in pieces of this size: fewer messages, and the sender never runs out
_PIECE = 2**20


class RemoteProcess(ProcessView):
    """A command that runs in the other process's sandbox. Closing it kills the command, unless it is kept."""

    def __init__(
        self,
        connection: Connection,
        stream: AnswerStream,
        *,
        tty: bool = False,
        announced: bool = True,
        kept: bool = False,
    ) -> None:
        """With `announced`, waits for a first answer that the command runs. Raises CommandError if it cannot run."""
        super().__init__(tty)
        self.kept = kept
        self.joined = False
        self._connection = connection
        self._stream = stream
        self._ungranted = 0
        self._granting = Lock()
        if announced:
            started = stream.next()
            self.pid = started["pid"]
            self.joined = started.get("joined", False)
            self.tty = started.get("tty", tty)

    def write(self, data: bytes) -> None:
        """Gives the command all of `data` as input. Raises BrokenPipeError when it reads no more."""
        view = memoryview(data)
        for at in range(0, len(view), _PIECE):
            self._input({"data": view[at : at + _PIECE]})

    def close_stdin(self) -> None:
        """Ends the command's input; on a terminal by typing Ctrl-D."""
        try:
            self._input({"end": True})
        except BrokenPipeError:
            pass  # it has ended already

    def _input(self, what: dict[str, Any]) -> None:
        try:
            self._connection.call("input", {"request": self._stream.id, **what})
        except RpcError as problem:
            if problem.code == errors.NO_SUCH_REQUEST:
                raise BrokenPipeError("the command reads no more input") from None
            raise

    def signal(self, number: int) -> None:
        """Sends a signal to the command's process group; nothing happens when it has ended."""
        self._ask(lambda: self._connection.call("signal", {"request": self._stream.id, "signal": int(number)}))

    def kill(self) -> None:
        """Kills every process of the command; nothing happens when it has ended."""
        self.signal(9)

    def resize(self, rows: int, columns: int) -> None:
        """Tells the command's terminal its new size."""
        size = {"rows": rows, "cols": columns}
        self._ask(lambda: self._connection.call("resize", {"request": self._stream.id, **size}))

    def _ask(self, act: Callable[[], object]) -> None:
        try:
            act()
        except RpcError as problem:
            if problem.code != errors.NO_SUCH_REQUEST:  # it ended first: what was asked no longer matters
                raise

    def _receive(self, timeout: float | None, stream: str | None = None) -> Chunk | None:
        if self.result is not None:
            return None
        raw = self._stream.next_raw(timeout)
        piece = msgspec.json.decode(raw, type=_Piece)
        if piece.exit_code is not None:
            self._stream.finished()
            self.result = result_of(msgspec.json.decode(raw, type=Ended))
            return None
        if piece.stdout is not None and piece.stderr is not None:
            self._unread.append(Chunk("stderr", piece.stderr))
        return Chunk("stdout", piece.stdout) if piece.stdout is not None else Chunk("stderr", piece.stderr or b"")

    def _taken(self, size: int) -> None:
        with self._granting:
            self._ungranted += size
            granted = self._ungranted if self._ungranted >= _ENOUGH else 0
            self._ungranted -= granted
        if granted and self.result is None:
            self._connection.notify("more", {"request": self._stream.id, "bytes": granted})

    def leave(self) -> None:
        """Cancels the request: readers get an RpcError. A kept command runs on."""
        self._connection.call("cancel", {"request": self._stream.id})

    def close(self) -> None:
        """Gives the command up: it is killed, unless it is kept under a name. Idempotent."""
        self._stream.close()


class Ended(msgspec.Struct):
    """The last answer about a command. Only the answer to `exec` contains output."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    signal: int | None = None
    timed_out: bool = False
    out_of_memory: bool = False
    truncated: bool = False
    duration_ms: int = 0
    user_ms: int = 0
    system_ms: int = 0
    max_rss_kb: int = 0
    note: str = ""


class _Piece(msgspec.Struct):
    """One answer of a streaming method, whichever it is."""

    stdout: bytes | None = None
    stderr: bytes | None = None
    exit_code: int | None = None


def result_of(ended: Ended) -> ExecResult:
    """The result as `Sandbox` returns it."""
    return ExecResult(**{name: getattr(ended, name) for name in Ended.__struct_fields__})
