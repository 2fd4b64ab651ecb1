"""A pool in another process, with the methods of `Pool`.

with ClientPool({"image": "debian"}, size=8) as pool, pool.get() as sb:       # starts `sandbox --rpc`
    sb.exec("./run-case")
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sandbox import arguments
from sandbox.client import Client, _by_socket, _server
from sandbox.pool.mapped import Mapped
from sandbox.pool.outcome import checked_concurrency, checked_retries
from sandbox.pool.shelf import PoolStats
from sandbox.rpc.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from sandbox.arguments import Command


class ClientPool:
    """Keeps `size` sandboxes of one configuration ready in a server. Safe to use from many threads.

    Closing it ends the server, and with it every sandbox that it handed out.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        size: int = 4,
        late_project: bool = False,
        max_age: float | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        """Starts a server as `Client` does, which begins to build. Raises what `Pool` raises, and SandboxError."""
        asked = {"config": dict(config or {}), "size": size, "late_project": late_project, "max_age": max_age}
        self._connection = Connection.start(command or _server())
        try:
            told = self._connection.call("pool_open", asked)
        except BaseException:
            self._connection.close()
            raise
        self.size: int = told["size"]
        self.engine: str = told["engine"]

    def get(
        self,
        *,
        project: str | os.PathLike[str] | None = None,
        secrets: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Client:
        """Hands out a sandbox, as `Pool.get`; it is the caller's to close. Raises what that raises."""
        asked = {
            "project": None if project is None else os.path.abspath(os.path.expanduser(os.fspath(project))),
            "secrets": None if secrets is None else dict(secrets),
            "environment": None if environment is None else dict(environment),
        }
        client = Client(connection=_by_socket(self._connection.call("pool_get", asked)["id"]))
        client._owns = True
        return client

    def map(
        self,
        work: Command | Callable[[Any, Any], Any],
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
        timeout: float | None = None,
        retries: Mapping[str, int] | None = None,
        give: Callable[[Any], Mapping[str, Any]] | Mapping[str, Any] | None = None,
        progress: bool | None = None,
    ) -> Mapped:
        """Does `work` for each item, each in a sandbox of its own, as `Pool.map`. Raises InvalidArgument."""
        get: Any = self.get
        most = checked_concurrency(concurrency, self.size)
        return Mapped(get, work, items, most, arguments.seconds(timeout), checked_retries(retries), give, progress)

    def stats(self) -> PoolStats:
        """Returns how many are ready, and how many were built, handed out and discarded."""
        return PoolStats(**self._connection.call("pool_stats", {}))

    def close(self) -> None:
        """Ends everything. Idempotent."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
