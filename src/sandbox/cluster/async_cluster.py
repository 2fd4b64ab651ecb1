"""The same cluster for asyncio programs: `sandbox` gives an AsyncSandbox that knows its machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from sandbox.aio import AsyncSandbox, _asked_in
from sandbox.async_threads import Threads
from sandbox.cluster.cluster import PATIENCE, Cluster
from sandbox.errors import SandboxClosed
from sandbox.hook_names import names_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from types import EllipsisType
    from typing import Self

    from sandbox.cluster.checkpoints import Checkpoints
    from sandbox.cluster.cluster_sandbox import ClusterSandbox
    from sandbox.info import ProcessInfo
    from sandbox.sandbox import Sandbox


class AsyncClusterSandbox(AsyncSandbox):
    """A sandbox on a machine of the cluster. See `ClusterSandbox`."""

    @property
    def remote(self) -> ClusterSandbox:
        """The sandbox itself, whose methods block."""
        return cast("ClusterSandbox", self.sync)

    @property
    def node(self) -> str:
        """Ray's id of the machine."""
        return self.remote.node

    async def save(self) -> None:
        """Makes a checkpoint now, as `ClusterSandbox.save`; raises what that raises."""
        await self._threads.run(self.remote.save)

    async def bring_back(self) -> AsyncSandbox:
        """Returns a local sandbox with the changes of this one, as `ClusterSandbox.bring_back`; raises the same."""
        return AsyncSandbox._around(await self._threads.run(self.remote.bring_back, lambda one: one.close()))

    async def processes(self) -> list[ProcessInfo]:
        """Returns the commands that run now, whoever started them."""
        return await self._threads.run(self.remote.processes)

    async def extend(
        self, lifetime: float | EllipsisType | None = ..., idle_timeout: float | EllipsisType | None = ...
    ) -> None:
        """Changes how long the sandbox lives, as `Sandbox.extend`; raises what that raises."""
        await self._threads.run(lambda: self.remote.extend(lifetime, idle_timeout))


class AsyncCluster:
    """`async with AsyncCluster("auto") as cluster: sb = await cluster.sandbox()`. See `Cluster`."""

    def __init__(
        self, address: str = "auto", *, pool: int = 0, team: str | None = None, patience: float = PATIENCE
    ) -> None:
        """Takes what `Cluster` takes; the cluster is joined on entering, or by `start()`."""
        self._address = address
        self._more: dict[str, Any] = {"pool": pool, "team": team, "patience": patience}
        self._cluster: Cluster | None = None
        self._closed = False
        self._starting = asyncio.Lock()  # several tasks may wait for the same join
        self._threads = Threads()

    async def start(self) -> Self:
        """Joins the cluster, unless it has already. Raises what `Cluster()` raises, and SandboxClosed."""
        if self._closed:
            raise SandboxClosed("the cluster is closed")
        async with self._starting:
            if self._cluster is None:
                self._cluster = await self._threads.run(
                    lambda: Cluster(self._address, **self._more), lambda one: one.close()
                )
        return self

    @property
    def sync(self) -> Cluster:
        """The cluster itself. Raises RuntimeError before `start`."""
        if self._cluster is None:
            raise RuntimeError("not started: use `async with`, or await start()")
        return self._cluster

    async def sandbox(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        project: str | os.PathLike[str] | None = None,
        hooks: object | None = None,
        cpus: float | None = None,
        memory: int | None = None,
        resources: Mapping[str, float] | None = None,
        timeout: float | None = None,
        on_wait: Callable[[int], object] | None = None,
        checkpoints: Checkpoints | None = None,
        placement: str | None = None,
    ) -> AsyncClusterSandbox:
        """Starts a sandbox where there is room, as `Cluster.sandbox`; raises what that raises.

        `on_wait` is called in a thread. When it is cancelled, the place is given back as soon as there is one.
        """
        if hooks is not None:
            names_of(hooks)
        asked = _asked_in(asyncio.get_running_loop(), hooks)
        more: dict[str, Any] = {
            "project": project, "hooks": asked, "cpus": cpus, "memory": memory, "resources": resources,
            "timeout": timeout, "on_wait": on_wait, "checkpoints": checkpoints, "placement": placement,
        }  # fmt: skip
        made = await self._threads.run(lambda: self.sync.sandbox(config, **more), lambda one: one.close())
        return AsyncClusterSandbox._around(cast("Sandbox", made))

    async def nodes(self) -> list[dict[str, Any]]:
        """Returns the machines, as `Cluster.nodes`. Raises SandboxError."""
        return await self._threads.run(self.sync.nodes)

    async def waiting(self) -> int:
        """Returns how many sandboxes of all clients wait for room. Raises SandboxError."""
        return await self._threads.run(self.sync.waiting)

    async def teams(self) -> list[dict[str, Any]]:
        """Returns the teams, as `Cluster.teams`. Raises SandboxError."""
        return await self._threads.run(self.sync.teams)

    async def set_teams(self, teams: Mapping[str, Any]) -> None:
        """Sets the teams, as `Cluster.set_teams`. Raises ConfigError, SandboxError."""
        await self._threads.run(lambda: self.sync.set_teams(teams))

    async def queue(self) -> list[dict[str, Any]]:
        """Returns who waits for their turn, as `Cluster.queue`. Raises SandboxError."""
        return await self._threads.run(self.sync.queue)

    async def drain(self, node: str, draining: bool = True) -> None:
        """Stops making sandboxes on a machine, as `Cluster.drain`. Raises NotFound, SandboxError."""
        await self._threads.run(lambda: self.sync.drain(node, draining))

    async def close(self) -> None:
        """Ends the sandboxes that were made here, and leaves the cluster. Idempotent."""
        self._closed = True
        try:
            if self._cluster is not None:
                await self._threads.run(self._cluster.close)
        finally:
            self._threads.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
