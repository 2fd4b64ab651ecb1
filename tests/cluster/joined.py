"""The cluster that suites of other directories run over."""

from __future__ import annotations

import atexit
from functools import cache
from typing import Any

from tests.cluster.three_nodes import three_nodes


@cache
def joined() -> Any:
    """Joined at the first call."""
    from sandbox.cluster import Cluster

    cluster = Cluster(three_nodes().address)
    atexit.register(cluster.close)
    return cluster


@cache
def joined_async() -> Any:
    """`AsyncCluster`, joined at the first call, with the loop that it lives in."""
    from sandbox.cluster import AsyncCluster
    from tests.api.surfaces import Awaited, Loop

    loop = Loop()
    cluster = Awaited(loop, loop.run(AsyncCluster(three_nodes().address).start()), owns_loop=True)
    atexit.register(cluster.__exit__)
    return cluster
