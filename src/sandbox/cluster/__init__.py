"""Sandboxes on the machines of a Ray cluster: docs/cluster.md. Ray is imported when a `Cluster` is made."""

from __future__ import annotations

from sandbox.cluster.cluster import Cluster, ClusterSandbox
from sandbox.errors import SandboxLost

__all__ = ["Cluster", "ClusterSandbox", "SandboxLost"]
