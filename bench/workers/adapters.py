"""The adapters beside `Sandbox.exec`: each figure is the milliseconds of one call, the mean of a few in a row.

Coroutines run in one loop that lives as long as the worker, as in an agent: starting a loop is nobody's call.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Thread
from typing import Any

from bench.harness import serve
from sandbox import CodeSession, Sandbox

CALLS = 20
SAMPLES = 1000


def main() -> None:
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, daemon=True).start()

    def wait(what: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await what

        return asyncio.run_coroutine_threadsafe(awaited(), loop).result()

    # The environment of the worker has ipykernel, for a session on a real kernel.
    os.environ["PATH"] = f"{sys.prefix}/bin:{os.environ['PATH']}"
    with Sandbox({"filesystem": {"allow_read": [sys.prefix]}}) as sandbox:
        figures: dict[str, Callable[[], float]] = {
            "exec, words": lambda: mean(lambda: checked(sandbox.exec(["true"]).ok)),
            "exec, shell": lambda: mean(lambda: checked(sandbox.exec("true").ok)),
        }
        for kernel in ("plain", "jupyter"):
            figures[f"session, {kernel}"] = code(sandbox.python(kernel))
        ends = [add(figures, sandbox, wait) for add in (deepagents, pydantic_ai, inspect, mcp)]
        serve({}, figures)
        for end in ends:
            end()


def mean(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) * 1000 / CALLS


async def mean_of(call: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        await call()
    return (time.perf_counter() - start) * 1000 / CALLS


def checked(ok: bool) -> None:
    if not ok:
        raise RuntimeError("it did not do what it should")


def code(session: CodeSession) -> Callable[[], float]:
    session.run("1")
    return lambda: mean(lambda: checked(session.run("1+1").text == "2"))


# -- adapters: each adds its figures and says how to end it

Figures = dict[str, Callable[[], float]]
Wait = Callable[[Awaitable[Any]], Any]


def deepagents(figures: Figures, sandbox: Sandbox, wait: Wait) -> Callable[[], object]:
    from sandbox.integrations.deepagents_backend import SandboxBackend

    backend = SandboxBackend(sandbox)

    async def call() -> None:
        checked((await backend.aexecute("true")).exit_code == 0)

    figures["deepagents"] = lambda: mean(lambda: checked(backend.execute("true").exit_code == 0))
    figures["deepagents, async"] = lambda: float(wait(mean_of(call)))
    return backend.close


def pydantic_ai(figures: Figures, sandbox: Sandbox, wait: Wait) -> Callable[[], object]:
    from sandbox.integrations.pydantic_workspace import SandboxWorkspace

    workspace = SandboxWorkspace()

    async def call() -> None:
        checked((await workspace.run(["true"])).exit_code == 0)

    figures["pydantic-ai"] = lambda: float(wait(mean_of(call)))
    return lambda: wait(workspace.close())


def inspect(figures: Figures, sandbox: Sandbox, wait: Wait) -> Callable[[], object]:
    from sandbox.integrations.inspect_environment import AgentSandboxEnvironment as Environment

    made = wait(Environment.sample_init("bench", None, {}))

    async def call() -> None:
        checked((await made["default"].exec(["true"])).success)

    async def samples() -> float:
        start = time.perf_counter()
        for _ in range(SAMPLES):
            fresh = await Environment.sample_init("bench", None, {})
            await Environment.sample_cleanup("bench", None, fresh, False)
        return (time.perf_counter() - start) * 1000 / SAMPLES

    figures["inspect"] = lambda: float(wait(mean_of(call)))
    figures["samples"] = lambda: float(wait(samples()))
    return lambda: wait(Environment.sample_cleanup("bench", None, made, False))


def mcp(figures: Figures, sandbox: Sandbox, wait: Wait) -> Callable[[], object]:
    from mcp import StdioServerParameters
    from mcp.client import Client
    from mcp.client.stdio import stdio_client

    program = str(Path(sys.executable).parent / "sandbox")
    server = StdioServerParameters(command=program, args=["mcp"], env=dict(os.environ))

    async def used() -> float:
        async with Client(stdio_client(server)) as client:

            async def call() -> None:
                checked(not (await client.call_tool("run_command", {"command": "true"})).is_error)

            await call()  # starts its sandbox
            return await mean_of(call)

    figures["mcp"] = lambda: float(wait(used()))
    return lambda: None


if __name__ == "__main__":
    main()
