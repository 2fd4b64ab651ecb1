"""OpenAI Agents SDK: commands that keep running while the agent does something else, on a terminal or on pipes.

The agent asks for new output whenever it wants. A command that prints more than is kept is not held up: the oldest
output is dropped, and the next answer says how much.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from collections import deque
from pathlib import Path

from agents.sandbox.errors import ExecTransportError, PtySessionNotFoundError
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
    truncate_text_by_tokens,
)
from agents.sandbox.types import User

from sandbox.aio import AsyncSandbox
from sandbox.async_process import AsyncProcess
from sandbox.errors import CommandError, SandboxError

SIZE = (24, 80)
KEPT = 2**20  # bytes of output kept until the agent asks for them
FIRST_WAIT, NEXT_WAIT = 10_000, 250  # milliseconds, as the SDK's own


class Terminal:
    """A running command and what it printed."""

    def __init__(self, process: AsyncProcess, tty: bool) -> None:
        self.process, self.tty = process, tty
        self.last_used = time.monotonic()
        self.exit_code: int | None = None
        self.ended = asyncio.Event()
        self._kept: deque[bytes] = deque()
        self._size = self._left_out = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._reader = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            async for chunk in self.process.chunks():
                self._kept.append(chunk.data)
                self._size += len(chunk.data)
                while self._size > KEPT:
                    self._size -= (length := len(self._kept.popleft()))
                    self._left_out += length
            assert self.process.result is not None
            self.exit_code = self.process.result.exit_code
        except SandboxError:
            self.exit_code = 137
        finally:
            self.ended.set()

    def taken(self, most: int | None) -> tuple[bytes, int | None]:
        """Returns the output since the last call, and its number of tokens when it was cut."""
        text = self._decoder.decode(b"".join(self._kept), final=self.ended.is_set())
        if self._left_out:
            text = f"[{self._left_out} bytes before this were left out]\n{text}"
        self._kept.clear()
        self._size = self._left_out = 0
        cut, tokens = truncate_text_by_tokens(text, most)
        return cut.encode(), tokens

    async def close(self) -> None:
        """Kills it, unless it has ended."""
        await self.process.close()
        await self._reader


class Terminals:
    """The part of a session that runs terminals."""

    sandbox: AsyncSandbox | None

    def __init__(self) -> None:
        self._terminals: dict[int, Terminal] = {}

    def supports_pty(self) -> bool:
        """Yes."""
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Starts a command. Returns its output until it ends or the time is up. Raises ExecTransportError."""
        words: list[str] = self._prepare_exec_command(*command, shell=shell, user=user)  # type: ignore[attr-defined]
        manifest = self.state.manifest  # type: ignore[attr-defined]
        env = await manifest.environment.resolve()
        try:
            sandbox = self._running_sandbox  # type: ignore[attr-defined]
            process = await sandbox.spawn(words, manifest.root, env=env, timeout=timeout, pty=SIZE if tty else None)
            if not tty:
                await process.close_stdin()
        except CommandError as problem:
            return PtyExecUpdate(None, f"{problem}\n".encode(), problem.exit_code, None)
        except SandboxError as problem:
            raise ExecTransportError(command=words, cause=problem) from problem
        number = allocate_pty_process_id(set(self._terminals))
        self._terminals[number] = Terminal(process, tty)
        await self._prune()
        wait = clamp_pty_yield_time_ms(FIRST_WAIT if yield_time_s is None else int(yield_time_s * 1000))
        return await self._update(number, wait, max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Types `chars`, returns new output. Raises PtySessionNotFoundError, and RuntimeError without a terminal."""
        terminal = self._terminals.get(session_id)
        if terminal is None:
            raise PtySessionNotFoundError(session_id=session_id)
        asked = NEXT_WAIT if yield_time_s is None else int(yield_time_s * 1000)
        wait = resolve_pty_write_yield_time_ms(yield_time_ms=asked, input_empty=not chars)
        if chars:
            if not terminal.tty:
                raise RuntimeError("stdin is not available for this process")  # the SDK looks for this text
            try:
                async with asyncio.timeout(wait / 1000):  # a command that does not read must not block us
                    await terminal.process.write(chars.encode())
            except (OSError, TimeoutError):
                pass
        terminal.last_used = time.monotonic()
        return await self._update(session_id, wait, max_output_tokens)

    async def _update(self, number: int, wait: int, most: int | None) -> PtyExecUpdate:
        terminal = self._terminals[number]
        try:
            await asyncio.wait_for(terminal.ended.wait(), wait / 1000)
        except TimeoutError:
            pass
        if not terminal.ended.is_set():
            output, tokens = terminal.taken(most)
            return PtyExecUpdate(number, output, None, tokens)
        self._terminals.pop(number, None)
        output, tokens = terminal.taken(most)
        await terminal.close()
        return PtyExecUpdate(None, output, terminal.exit_code, tokens)

    async def _prune(self) -> None:
        if len(self._terminals) > PTY_PROCESSES_MAX:
            told = [(number, one.last_used, one.ended.is_set()) for number, one in self._terminals.items()]
            oldest = process_id_to_prune_from_meta(told)
            if oldest is not None:
                await self._terminals.pop(oldest).close()

    async def pty_terminate_all(self) -> None:
        """Kills every command."""
        while self._terminals:
            await self._terminals.popitem()[1].close()
