"""The cluster that suites of other directories run over."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tests.cluster.three_nodes import three_nodes

_leave: list[Callable[[], object]] = []


def leave() -> None:
    """Call it at the end of the run: at the program's end it is too late, threads cannot be started any more."""
    while _leave:
        _leave.pop()()


@cache
def joined() -> Any:
    """Joined at the first call."""
    from sandbox.cluster import Cluster

    cluster = Cluster(three_nodes().address)
    _leave.append(cluster.close)
    return cluster


@cache
def joined_async() -> Any:
    """`AsyncCluster`, joined at the first call, with the loop that it lives in."""
    from sandbox.cluster import AsyncCluster
    from tests.api.surfaces import Awaited, Loop

    loop = Loop()
    cluster = Awaited(loop, loop.run(AsyncCluster(three_nodes().address).start()), owns_loop=True)
    _leave.append(cluster.__exit__)
    return cluster
