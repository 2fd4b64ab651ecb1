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
