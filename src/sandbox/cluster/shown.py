"""A cluster as the dashboard shows it."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any

from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from sandbox.cluster.cluster import Cluster

FRESH = 2.0  # seconds for which an answer is good, however many pages ask


class ShownCluster:
    """Joins the cluster at the first look, and again after a look that failed."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = Lock()
        self._cluster: Cluster | None = None
        self._found: dict[str, Any] = {}
        self._looked = float("-inf")

    def look(self) -> dict[str, Any]:
        """The nodes, the teams and the queue; `problem` says why there are none. Blocks."""
        with self._lock:
            if time.monotonic() > self._looked + FRESH:
                self._found = self._look()
                self._looked = time.monotonic()
            return self._found

    def _look(self) -> dict[str, Any]:
        from sandbox.cluster.cluster import Cluster

        try:
            if self._cluster is None:
                self._cluster = Cluster(self._address)
            nodes = [_node(one) for one in self._cluster.nodes()]
            return {
                "nodes": nodes, "teams": self._cluster.teams(), "queue": self._cluster.queue(),
                "waiting": self._cluster.waiting(), "problem": "",
            }  # fmt: skip
        except SandboxError as problem:
            left, self._cluster = self._cluster, None
            if left is not None:
                left.close()
            return {"nodes": [], "teams": [], "queue": [], "waiting": 0, "problem": str(problem)}


def _node(one: dict[str, Any]) -> dict[str, Any]:
    state = "no agent" if "pid" not in one else "draining" if one["draining"] else "up"
    return {
        "node": one["node"][:12], "address": one["address"], "cpus": one["resources"].get("CPU", 0.0),
        "memory": one["resources"].get("memory", 0.0), "sandboxes": one.get("sandboxes", 0),
        "ready": one.get("ready", 0), "state": "silent" if "problem" in one else state, "record": one.get("record", ""),
    }  # fmt: skip
