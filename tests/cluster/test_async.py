"""The cluster for asyncio programs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox import SandboxClosed
from sandbox.cluster import AsyncCluster
from sandbox.result import Chunk
from tests.cluster.three_nodes import ThreeNodes
from tests.pool.waiting import until


def test_sandboxes_of_a_cluster_are_awaited(cluster: Any, machines: ThreeNodes) -> None:
    async def program() -> None:
        async with AsyncCluster(machines.address) as joined:
            async with await joined.sandbox({"environment": {"set": {"WHO": "ann"}}}) as sandbox:
                assert (await sandbox.exec("cat; echo $WHO", input="hello ")).stdout == "hello ann\n"
                await sandbox.write_text("file", "content")
                assert await sandbox.read_text("file") == "content"
                parts = [one async for one in sandbox.exec_stream("echo a; echo b")]
                assert b"".join(one.data for one in parts if isinstance(one, Chunk)) == b"a\nb\n"
                async with await sandbox.spawn(["cat"]) as process:
                    assert [one.pid for one in await sandbox.processes()] == [process.pid]
                    await process.write(b"through")
                    await process.close_stdin()
                    assert b"".join([chunk.data async for chunk in process.chunks()]) == b"through"
                assert sandbox.node in {one["node"] for one in await joined.nodes()}
            with pytest.raises(SandboxClosed):
                await sandbox.exec("true")
            made = await asyncio.gather(*(joined.sandbox() for _ in range(4)))
            said = await asyncio.gather(*(one.exec("echo x") for one in made))
            assert [one.stdout for one in said] == ["x\n"] * 4
            for one in made:
                await one.close()

    asyncio.run(program())


def test_a_cancelled_command_is_killed(cluster: Any, machines: ThreeNodes) -> None:
    async def program() -> None:
        async with AsyncCluster(machines.address) as joined, await joined.sandbox() as sandbox:
            task = asyncio.create_task(sandbox.exec("sleep 1000"))
            while not await sandbox.processes():
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(until, lambda: not sandbox.remote.processes())

    asyncio.run(program())
