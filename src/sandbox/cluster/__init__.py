"""Sandboxes on the machines of a Ray cluster: docs/cluster.md. Ray is imported when a `Cluster` is made."""

from __future__ import annotations

from sandbox.cluster.async_cluster import AsyncCluster, AsyncClusterSandbox
from sandbox.cluster.checkpoints import Checkpoints
from sandbox.cluster.cluster import Cluster
from sandbox.cluster.cluster_sandbox import ClusterSandbox
from sandbox.errors import SandboxLost

__all__ = ["AsyncCluster", "AsyncClusterSandbox", "Checkpoints", "Cluster", "ClusterSandbox", "SandboxLost"]
