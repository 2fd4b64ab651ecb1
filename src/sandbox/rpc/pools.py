"""A pool of sandboxes for a client in another process: `pool_open`, `pool_get`, `pool_stats`, `pool_close`.

What is handed out is a sandbox with an id, as a fork is: the client reaches it by its socket, and closes it there. It
ends with this server at the latest.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from sandbox.rpc import errors, methods
from sandbox.rpc import messages as m
from sandbox.rpc.errors import Fault

if TYPE_CHECKING:
    from sandbox.pool.pool import Pool
    from sandbox.sandbox import Sandbox
    from sandbox.sandboxes import Sandboxes


class RpcPool:
    """The one pool of a server. Safe to use from many threads."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._handed_out: list[Sandbox] = []
        self._lock = Lock()
        self._closed = False

    def open(self, sandboxes: Sandboxes | None, asked: m.PoolOpen) -> dict[str, Any]:
        """Begins to build. Raises Fault when there is one already, or none is possible, and what `Pool` raises."""
        from sandbox.config.dialects import from_client
        from sandbox.pool.pool import Pool
        from sandbox.pool.shelf import MAX_AGE
        from sandbox.sandboxes import Sandboxes

        if not isinstance(sandboxes, Sandboxes):
            raise Fault(errors.DENIED, "a pool needs a `sandbox --rpc` of its own; a server has `sandbox serve --pool`")
        config = sandboxes.configured(from_client(asked.config))
        age = MAX_AGE if asked.max_age is None else asked.max_age
        with self._lock:
            if self._pool is not None or self._closed:
                raise Fault(errors.ALREADY_CREATED, "there is a pool here; start another `sandbox --rpc`")
            self._pool = Pool(config, size=asked.size, late_project=asked.late_project, max_age=age)
            return {"engine": self._pool.engine, "size": self._pool.size}

    def get(self, asked: m.PoolGet) -> dict[str, Any]:
        """Hands one out. Raises Fault, and what `Pool.get` raises."""
        made = self._there().get(project=asked.project, secrets=asked.secrets, environment=asked.environment)
        with self._lock:
            closed = self._closed
            self._handed_out = [one for one in self._handed_out if not one._closed]
            self._handed_out.append(made)
        if closed:
            made.close()
        return methods.info(made, m.Nothing())

    def stats(self) -> dict[str, Any]:
        """How many are ready, and how many were built, handed out and discarded. Raises Fault."""
        return dict(self._there().stats())

    def close(self, *, everything: bool) -> None:
        """Ends the sandboxes that wait; with `everything`, also those that were handed out. Idempotent."""
        with self._lock:
            pool, handed_out = self._pool, self._handed_out if everything else []
            self._closed = self._closed or everything
        if pool is not None:
            pool.close()
        for one in handed_out:
            one.close()

    def _there(self) -> Pool:
        with self._lock:
            if self._pool is None:
                raise Fault(errors.NOT_CREATED, "there is no pool yet; call `pool_open` first")
            return self._pool
