"""A code session for asyncio programs: the methods of `CodeSession`, as coroutines."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sandbox.result import OUTPUT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any, Self

    from sandbox.sessions.result import CodeResult, RichOutput
    from sandbox.sessions.session import CodeSession, Listener


class AsyncCodeSession:
    """An interpreter inside that keeps its state between calls to `run`, which run one at a time."""

    def __init__(self, session: CodeSession, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        """`in_thread` runs a function that may block; made by `AsyncSandbox`."""
        self._session = session
        self._in_thread = in_thread

    async def run(
        self,
        code: str,
        timeout: float | None = None,
        *,
        max_output: int = OUTPUT_LIMIT,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
        on_output: Callable[[RichOutput], object] | None = None,
    ) -> CodeResult:
        """Runs code, as `CodeSession.run`; raises what that raises. Cancelling it interrupts the code; the state stays.

        `on_stdout`, `on_stderr` and `on_output` are called in the loop.
        """
        from sandbox.sessions.session import CodeTurn, RunningCode

        loop = asyncio.get_running_loop()

        def told(listener: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
            return None if listener is None else lambda piece: loop.call_soon_threadsafe(listener, piece)

        running = RunningCode(max_output, told(on_stdout), told(on_stderr), told(on_output))
        turn = CodeTurn()
        try:
            result: CodeResult = await self._in_thread(lambda: self._session._run_turn(turn, code, timeout, running))
        except asyncio.CancelledError:
            turn.abandon()
            raise
        return result

    async def interrupt(self) -> None:
        """Interrupts the code that runs now, as Ctrl-C would: its `run` returns with an error. The state stays.

        Does nothing when no code runs. Raises SandboxClosed.
        """
        self._session.interrupt()

    async def restart(self) -> None:
        """Kills the interpreter with all that runs in it; the next `run` starts a new one. Raises nothing."""
        await self._in_thread(self._session.restart)

    async def close(self) -> None:
        """Ends the interpreter. Idempotent."""
        await self._in_thread(self._session.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
