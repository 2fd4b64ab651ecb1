"""What a command left behind."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CUT = b"\n[output cut by sandbox: %d more bytes]\n"


class Chunk:
    """A piece of a running command's output."""

    __slots__ = ("stream", "data")

    def __init__(self, stream: str, data: bytes) -> None:
        self.stream = stream
        self.data = data

    def __repr__(self) -> str:
        return f"Chunk({self.stream!r}, {self.data!r})"


class ExecResult:
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
        self.note = note  # why it ended, in words, when it was not its own doing

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode(errors="replace")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def __getitem__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(type(self), name):
            raise KeyError(name)
        return getattr(self, name)

    def __repr__(self) -> str:
        ended = f"signal={self.signal}" if self.signal is not None else f"exit_code={self.exit_code}"
        note = f", note={self.note!r}" if self.note else ""
        return f"ExecResult({ended}, stdout={self.stdout!r}, stderr={self.stderr!r}{note})"


class Collector:
    """Output up to a limit; what is over it is counted, not kept, and marked."""

    __slots__ = ("_parts", "_room", "_over")

    def __init__(self, limit: int) -> None:
        self._parts: list[bytes] = []
        self._room = limit
        self._over = 0

    def add(self, data: bytes) -> None:
        kept = data[: self._room]
        if kept:
            self._parts.append(kept)
            self._room -= len(kept)
        self._over += len(data) - len(kept)

    @property
    def truncated(self) -> bool:
        return self._over > 0

    def value(self) -> bytes:
        return b"".join(self._parts) + (CUT % self._over if self._over else b"")
