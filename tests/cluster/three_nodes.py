"""A Ray cluster of three nodes on this machine, for the whole run."""

from __future__ import annotations

import atexit
import os
import tempfile
from functools import cache
from typing import Any

from tests.ports import unused_port

STORE = 100 * 2**20  # bytes of each node's object store
CPUS = 2
SINGLE = "single"  # a resource of one of them, for a bench that wants one node
ATTEMPTS = 3  # at starting a node
# A node that is killed is noticed within seconds, unless who runs this said otherwise.
HEALTH = {"initial_delay_ms": "1000", "period_ms": "200", "failure_threshold": "3", "timeout_ms": "1000"}


def patient() -> None:
    """Call it first, where nodes are busy for minutes: one that is slow to answer is not dead. One that was killed is
    noticed all the same, because its connections end."""
    os.environ.update({f"RAY_health_check_{name}": str(int(value) * 20) for name, value in HEALTH.items()})


class ThreeNodes:
    """`home` is where the agents keep their registries."""

    def __init__(self) -> None:
        self.home = tempfile.mkdtemp(prefix="sc-")
        os.environ.update(SANDBOX_HOME=self.home, RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
        os.environ.update(RAY_worker_niceness="0")  # Ray's 15 starves agents, and all sandboxes, on a busy machine
        for name, value in HEALTH.items():
            os.environ.setdefault(f"RAY_health_check_{name}", value)
        from ray.cluster_utils import Cluster

        port = unused_port()
        self.ray: Any = Cluster(initialize_head=True, head_node_args={**self._node(), "ray_client_server_port": port})
        self.client_address = f"ray://127.0.0.1:{port}"
        self.nodes = [self.add(), self.add({"one": 1, SINGLE: 1})]
        self.address: str = self.ray.address
        atexit.register(self.ray.shutdown)

    def add(self, resources: dict[str, int] | None = None) -> Any:
        """One more node. Ray waits 30 s for it, and a busy machine is no bug: then another one is started."""
        os.environ["SANDBOX_HOME"] = self.home  # a test's own is another, and the node inherits it
        asked = {**self._node(), **({"resources": resources} if resources else {})}
        for _ in range(ATTEMPTS):
            try:
                return self.ray.add_node(**asked)
            except Exception as problem:  # Ray raises nothing narrower
                if "timed out during startup" not in str(problem):
                    raise
        return self.ray.add_node(**asked)

    @staticmethod
    def _node() -> dict[str, Any]:
        return {"num_cpus": CPUS, "object_store_memory": STORE, "include_dashboard": False, "resources": {"one": 1}}


@cache
def three_nodes() -> ThreeNodes:
    """Started at the first call."""
    return ThreeNodes()
