"""A running command, as `spawn` and `connect` return it: the same methods in this process and in another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, Self, runtime_checkable

from sandbox.process_view import PIECE
from sandbox.result import Chunk, ExecResult


@runtime_checkable
class Process(Protocol):
    """A running command. One thread reads its output at a time; others may write, signal and close meanwhile.

    `pid` is its number inside. `result` is set once its end has been read or waited for.
    """

    @property
    def pid(self) -> int | None:
        """Its process id inside the sandbox."""

    @property
    def result(self) -> ExecResult | None:
        """How it ended; None until that is known."""

    @property
    def tty(self) -> bool:
        """Whether it runs on a terminal."""

    def write(self, data: bytes) -> None:
        """Gives the command all of `data` as input. Raises BrokenPipeError when it reads no more."""

    def close_stdin(self) -> None:
        """Ends the command's input; on a terminal by typing Ctrl-D."""

    def read(self, size: int = PIECE, stream: str = "stdout") -> bytes:
        """Returns at most `size` bytes of "stdout" or "stderr" as soon as there are some; b"" at the end of the output.

        On a terminal there is one stream, whatever is asked for. Raises InvalidArgument, SandboxClosed.
        """

    def chunks(self) -> Iterator[Chunk]:
        """Yields output as it comes, until the command has ended; `result` is set afterwards. Raises SandboxClosed."""

    def wait(self, timeout: float | None = None) -> ExecResult:
        """Waits until the command has ended. The result has what it printed and nobody has read, up to 10 MiB of each.

        Raises TimeoutError after `timeout` seconds; the command runs on, and a later `wait` has all of its output.
        """

    def signal(self, number: int) -> None:
        """Sends a signal to the command's process group; nothing happens when it has ended."""

    def kill(self) -> None:
        """Kills every process of the command; nothing happens when it has ended."""

    def resize(self, rows: int, columns: int) -> None:
        """Tells the command's terminal its new size."""

    def close(self) -> None:
        """Gives the command up: it is killed, unless it is kept under a name. Idempotent."""

    def __enter__(self) -> Self:
        """Returns itself."""

    def __exit__(self, *_: object) -> None:
        """Closes it."""
