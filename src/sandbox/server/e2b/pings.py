"""Streams with keepalives, so that no proxy on the way takes them for dead, and with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from litestar import Request

from sandbox.server.e2b.connect import Failed

T = TypeVar("T")
PING = 50.0  # seconds without a message before a keepalive, unless the client sets another interval


def ping_of(request: Request[Any, Any, Any]) -> float:
    """How many seconds a stream may be silent."""
    text = request.headers.get("keepalive-ping-interval", "")
    return min(max(1.0, float(text)), 3600.0) if text.isascii() and text.isdigit() and len(text) < 6 else PING


async def pinged(items: AsyncIterator[T], ping: float, limit: float | None = None) -> AsyncIterator[T | None]:
    """The items, and None whenever none came for `ping` seconds. Raises Failed after `limit` seconds."""
    until = None if limit is None else time.monotonic() + limit
    waiting = asyncio.ensure_future(_next(items))
    try:
        while True:
            left = ping if until is None else min(ping, max(0.0, until - time.monotonic()))
            done, _ = await asyncio.wait([waiting], timeout=left)
            if done:
                found = waiting.result()
                if found is None:
                    return
                waiting = asyncio.ensure_future(_next(items))
                yield found
            elif until is not None and time.monotonic() >= until:
                raise Failed("deadline_exceeded", "the time for this call is over")
            else:
                yield None
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _next(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)
