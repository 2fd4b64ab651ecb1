"""The same pool in an asyncio program."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sandbox import AsyncPool, AsyncSandbox, SandboxClosed
from sandbox.errors import ConfigError
from tests.pool.waiting import running

pytestmark = pytest.mark.walls


def test_a_sandbox_is_handed_out_with_what_it_is_given(home: Path) -> None:
    async def program() -> None:
        async with AsyncPool(size=1) as pool:
            assert await pool.fill(60)
            async with await pool.get(environment={"WHO": "ann"}) as sandbox:
                assert (await sandbox.exec("echo $WHO")).stdout == "ann\n"
            assert (await pool.stats()).handed_out == 1
        with pytest.raises(SandboxClosed):
            await pool.start()

    asyncio.run(program())
    assert not running(home)


def test_map_takes_commands_functions_and_coroutine_functions(home: Path) -> None:
    async def coroutine(sandbox: AsyncSandbox, item: int) -> str:
        return (await sandbox.exec(["echo", str(item)])).stdout

    async def program() -> list[Any]:
        found = []
        async with AsyncPool(size=2) as pool:
            for work in ('echo "$1"', coroutine, lambda sandbox, item: f"{item}\n"):
                outcomes = [one async for one in pool.map(work, range(3))]
                outcomes.sort(key=lambda one: one.index)
                found.append([getattr(one.value, "stdout", one.value) for one in outcomes])
        return found

    assert asyncio.run(program()) == [["0\n", "1\n", "2\n"]] * 3
    assert not running(home)


def test_a_cancelled_map_leaves_nothing(home: Path) -> None:
    async def program() -> None:
        async with AsyncPool(size=2) as pool:
            first = asyncio.Event()

            async def follow() -> None:
                async for _ in pool.map('test "$1" = 0 || exec sleep 1000', range(50)):
                    first.set()

            task = asyncio.create_task(follow())
            await first.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(program())
    assert not running(home)


def test_what_makes_every_item_impossible_is_raised(home: Path) -> None:
    async def program() -> None:
        async with AsyncPool(size=1) as pool:
            async for _ in pool.map("true", range(5), give={"secrets": {"KEY": {"valeu": "x"}}}):
                pass

    with pytest.raises(ConfigError, match="unknown key"):
        asyncio.run(program())
    assert not running(home)
