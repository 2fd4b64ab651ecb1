"""The four surfaces of the one API, driven alike: what is awaitable is awaited here, so that one suite fits all."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import sandbox.sandbox
from sandbox import AsyncCodeSession, AsyncProcess, AsyncSandbox, Client, Sandbox

ENGINES = ["bubblewrap", "none"]

PROGRAM = [sys.executable, "-m", "sandbox.cli.main"]
FRAMED = [sys.executable, str(Path(__file__).parents[1] / "engines" / "framed_cli.py")]
SURFACES: dict[str, Callable[..., Any]] = {}


def surface(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds one under that name."""

    def add(make: Callable[..., Any]) -> Callable[..., Any]:
        SURFACES[name] = make
        return make

    return add


@surface("Sandbox")
def in_process(config: dict[str, Any], hooks: object | None = None) -> Any:
    return Sandbox(config, hooks=hooks)


@surface("Client")
def over_rpc(config: dict[str, Any], hooks: object | None = None) -> Any:
    return Client(config, hooks=hooks, command=[*_program(), "--rpc"])


@surface("http")
def over_http(config: dict[str, Any], hooks: object | None = None) -> Any:
    from tests.api.http_server import server

    served = server(_program())
    return Sandbox.connect(served.address, served.token, config, hooks=hooks)


@surface("AsyncSandbox")
def awaited(config: dict[str, Any], hooks: object | None = None) -> Any:
    loop = Loop()
    try:
        return Awaited(loop, loop.run(AsyncSandbox(config, hooks=hooks).start()), owns_loop=True)
    except BaseException:
        loop.close()
        raise


def over_cluster(config: dict[str, Any], hooks: object | None = None) -> Any:
    """On a node of a Ray cluster: `scripts/cluster` runs the suite over this one instead."""
    from tests.cluster.joined import joined

    return joined().sandbox(config, hooks=hooks)


def over_async_cluster(config: dict[str, Any], hooks: object | None = None) -> Any:
    """The same, awaited."""
    from tests.cluster.joined import joined_async

    cluster = joined_async()
    return Awaited(cluster._loop, cluster._loop.run(cluster._inner.sandbox(config, hooks=hooks)))


_CLUSTERS = {"cluster": over_cluster, "async-cluster": over_async_cluster}
if (asked := os.environ.get("SANDBOX_SURFACE")) in _CLUSTERS:
    SURFACES = {asked: _CLUSTERS[asked]}


def _program() -> list[str]:
    """The command for surfaces that start a process. The framed engine is the tests' own, so it needs its own."""
    return FRAMED if vars(sandbox.sandbox)["choose"].__module__.startswith("tests.") else PROGRAM


def make(name: str, engine: str, project: Path, *, hooks: object | None = None, **config: Any) -> Any:
    """A sandbox of that engine, by that surface, with `project` as its root."""
    filesystem = {"root": str(project), **config.pop("filesystem", {})}
    known = "none" if engine == "framed" else engine  # which `engine` in conftest.py then replaces
    return SURFACES[name]({"engine": known, "filesystem": filesystem, **config}, hooks)


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)  # some are closed at the program's end
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Awaited:
    """An object with coroutine methods, as if they were plain ones."""

    def __init__(self, loop: Loop, inner: Any, owns_loop: bool = False) -> None:
        self._loop, self._inner, self._owns_loop = loop, inner, owns_loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if inspect.iscoroutinefunction(value):
            return lambda *args, **more: self._shown(self._loop.run(value(*args, **more)))
        if inspect.isasyncgenfunction(value):
            return lambda *args, **more: self._iterated(value(*args, **more))
        return value

    def _shown(self, value: Any) -> Any:
        if isinstance(value, AsyncProcess | AsyncCodeSession):
            return Awaited(self._loop, value)
        if hasattr(value, "setblocking"):
            value.setblocking(True)
        return value

    def _iterated(self, source: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._loop.run(source.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run(source.aclose())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._inner.close())
        if self._owns_loop:
            self._loop.close()
