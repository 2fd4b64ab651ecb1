"""What a command left behind."""

from __future__ import annotations

from sandbox.errors import CommandError, InvalidArgument, Message
from sandbox.fields import Fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Listener = Callable[[bytes], object]

OUTPUT_LIMIT = 10 * 2**20  # bytes that are kept of each of a command's two outputs, unless the caller says otherwise
CUT = b"\n[output cut by sandbox: %d more bytes]\n"


class Chunk:
    """A piece of a running command's output."""

    __slots__ = ("stream", "data")

    def __init__(self, stream: str, data: bytes) -> None:
        self.stream = stream
        self.data = data

    def __repr__(self) -> str:
        return f"Chunk({self.stream!r}, {self.data!r})"


class ExecResult(Fields):
    """How a command ended. `result.stdout` and `result["stdout"]` are the same."""

    __slots__ = (
        "exit_code",
        "signal",
        "timed_out",
        "out_of_memory",
        "truncated",
        "stdout_bytes",
        "stderr_bytes",
        "duration_ms",
        "user_ms",
        "system_ms",
        "max_rss_kb",
        "note",
    )
    fields = (*__slots__, "stdout", "stderr", "ok")

    def __init__(
        self,
        *,
        exit_code: int,
        signal: int | None = None,
        timed_out: bool = False,
        out_of_memory: bool = False,
        truncated: bool = False,
        stdout: bytes = b"",
        stderr: bytes = b"",
        duration_ms: int = 0,
        user_ms: int = 0,
        system_ms: int = 0,
        max_rss_kb: int = 0,
        note: str = "",
    ) -> None:
        self.exit_code = exit_code  # 128 + n when a signal ended it, as shells say
        self.signal = signal
        self.timed_out = timed_out
        self.out_of_memory = out_of_memory
        self.truncated = truncated
        self.stdout_bytes = stdout
        self.stderr_bytes = stderr
        self.duration_ms = duration_ms
        self.user_ms = user_ms
        self.system_ms = system_ms
        self.max_rss_kb = max_rss_kb
        self.note = note  # why it ended, in words, when something else ended it

    @property
    def stdout(self) -> str:
        """What it printed, as text; `stdout_bytes` has the exact bytes."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """What it wrote to standard error, as text; `stderr_bytes` has the exact bytes."""
        return self.stderr_bytes.decode(errors="replace")

    @property
    def ok(self) -> bool:
        """Whether its exit code was 0."""
        return self.exit_code == 0

    def check(self, command: str = Message("the command")) -> None:
        """Raises CommandError, with both outputs, unless the command ended with exit code 0."""
        if self.ok:
            return
        if self.note:
            how = Message("{command} failed: {reason}", command=command, reason=self.note)
        elif self.signal is not None:
            how = Message("{command} was ended by signal {signal}", command=command, signal=self.signal)
        else:
            how = Message("{command} exited with status {status}", command=command, status=self.exit_code)
        lines = self.stderr.strip().splitlines()
        if lines:
            how = Message("{how}: {last}", how=how, last=lines[-1][:500])
        raise CommandError(how, exit_code=self.exit_code, result=self)

    def __repr__(self) -> str:
        ended = f"signal={self.signal}" if self.signal is not None else f"exit_code={self.exit_code}"
        note = f", note={self.note!r}" if self.note else ""
        return f"ExecResult({ended}, stdout={self.stdout!r}, stderr={self.stderr!r}{note})"


class Collector:
    """Output up to a limit; the rest is only counted, and a mark says how much it was."""

    __slots__ = ("_kept", "_room", "_over")

    def __init__(self, limit: int) -> None:
        self._kept = bytearray()  # not a list: a program may write byte by byte
        self._room = limit
        self._over = 0

    def add(self, data: bytes) -> None:
        kept = self.keeps(data)
        self._kept += data[:kept]
        self._room -= kept
        self._over += len(data) - kept

    def keeps(self, data: bytes) -> int:
        """How many bytes of `data` would be kept."""
        return min(len(data), self._room)

    def stop(self) -> None:
        """Keeps no more."""
        self._room = 0

    @property
    def truncated(self) -> bool:
        return self._over > 0

    def value(self) -> bytes:
        return bytes(self._kept) + (CUT % self._over if self._over else b"")


class Output:
    """Both outputs of one command, collected; listeners are called with each piece as it comes."""

    __slots__ = ("_kept", "_listeners", "limit", "listened")

    def __init__(
        self, limit: int = OUTPUT_LIMIT, on_stdout: Listener | None = None, on_stderr: Listener | None = None
    ) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise InvalidArgument("max_output must be a number of bytes, not {limit!r}", limit=limit)
        self._kept = {"stdout": Collector(limit), "stderr": Collector(limit)}
        self._listeners = {"stdout": on_stdout, "stderr": on_stderr}
        self.limit = limit
        self.listened = on_stdout is not None or on_stderr is not None

    def add(self, chunk: Chunk) -> object:
        """Takes a piece. Returns what the listener returned, which may be awaitable."""
        self._kept[chunk.stream].add(chunk.data)
        listener = self._listeners[chunk.stream]
        return None if listener is None else listener(chunk.data)

    def keeps(self, chunk: Chunk) -> int:
        """How many bytes of `chunk` would be kept."""
        return self._kept[chunk.stream].keeps(chunk.data)

    def stop(self) -> None:
        """Keeps no more of either."""
        for one in self._kept.values():
            one.stop()

    def into(self, result: ExecResult) -> ExecResult:
        """The same result, with what was collected."""
        out, err = self._kept.values()
        result.stdout_bytes, result.stderr_bytes = out.value(), err.value()
        result.truncated = out.truncated or err.truncated
        return result
