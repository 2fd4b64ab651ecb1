"""Connections last no longer than the token that opened them: streams, terminals and commands end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from sandbox.server.scopes import Access
from sandbox.server.tokens import Tokens

LOOK = 1.0  # seconds between checks of the tokens


class Lasting:
    """Used only from the event loop."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._open: dict[asyncio.Task[Any], Access] = {}
        self._ended: set[asyncio.Task[Any]] = set()
        self._looking: asyncio.Task[None] | None = None

    async def run(self, access: Access, work: Awaitable[None]) -> bool:
        """Awaits `work` in the current task. Returns False when the token ended first."""
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = access
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        try:
            await work
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            return False
        finally:
            del self._open[task]
            self._ended.discard(task)
        return True

    async def _look(self) -> None:
        while self._open:
            await asyncio.sleep(LOOK)
            for task, access in list(self._open.items()):
                if task not in self._ended and not self._lasts(access):
                    self._ended.add(task)
                    task.cancel()

    def _lasts(self, access: Access) -> bool:
        try:
            return self._tokens.lasts(access)
        except Exception:  # noqa: BLE001 - a token that cannot be checked is not valid
            return False
