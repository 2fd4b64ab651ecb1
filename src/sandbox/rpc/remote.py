"""A command that runs in another process's sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from sandbox.result import Chunk, Collector, ExecResult
from sandbox.rpc.connection import Connection, Stream

if TYPE_CHECKING:
    from typing import Self

_OUTPUT_LIMIT = 10 * 2**20


class RemoteProcess:
    """A command that runs in the other process's sandbox. Closing it kills the command (or leaves a kept terminal)."""

    def __init__(self, connection: Connection, stream: Stream) -> None:
        self._connection = connection
        self._stream = stream
        started = stream.next()
        self.pid: int = started["pid"]
        self.joined: bool = started.get("joined", False)
        self.result: ExecResult | None = None

    def write(self, data: bytes) -> None:
        """Gives the command input; returns when it has been taken. Raises RpcError when it reads no more."""
        self._connection.call("input", {"request": self._stream.id, "data": data})

    def close_stdin(self) -> None:
        """Ends the command's input."""
        self._connection.call("input", {"request": self._stream.id, "end": True})

    def signal(self, number: int) -> None:
        """Sends a signal to the command's process group."""
        self._connection.call("signal", {"request": self._stream.id, "signal": number})

    def resize(self, rows: int, columns: int) -> None:
        """Tells the command's terminal its new size."""
        self._connection.call("resize", {"request": self._stream.id, "rows": rows, "cols": columns})

    def kill(self) -> None:
        """Kills every process of the command."""
        import signal

        self.signal(signal.SIGKILL)

    def chunks(self) -> Iterator[Chunk]:
        """Output as it comes, until the command has ended; `result` is there afterwards."""
        for piece in pieces(self._stream):
            if isinstance(piece, ExecResult):
                self.result = piece
            else:
                yield piece

    def wait(self, max_output: int = _OUTPUT_LIMIT) -> ExecResult:
        """Until it has ended; what it printed and nobody has taken is in the result."""
        output = {"stdout": Collector(max_output), "stderr": Collector(max_output)}
        for chunk in self.chunks():
            output[chunk.stream].add(chunk.data)
        assert self.result is not None
        self.result.stdout_bytes, self.result.stderr_bytes = output["stdout"].value(), output["stderr"].value()
        return self.result

    def leave(self) -> None:
        """Cancels: whoever reads `chunks` hears RpcError; a kept terminal lives on."""
        self._connection.call("cancel", {"request": self._stream.id})

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Ended(msgspec.Struct):
    """The last answer of a command; output is in it for `exec` alone."""

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


def pieces(stream: Stream) -> Iterator[Chunk | ExecResult]:
    """A streaming method's answers as they come; the result last."""
    while True:
        raw = stream.next_raw()
        piece = msgspec.json.decode(raw, type=_Piece)
        if piece.exit_code is not None:
            stream.finished()
            yield result_of(msgspec.json.decode(raw, type=Ended))
            return
        if piece.stdout is not None:
            yield Chunk("stdout", piece.stdout)
        if piece.stderr is not None:
            yield Chunk("stderr", piece.stderr)


def result_of(ended: Ended) -> ExecResult:
    """The same as `Sandbox` gives it."""
    return ExecResult(**{name: getattr(ended, name) for name in Ended.__struct_fields__})
