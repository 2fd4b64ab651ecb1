"""The machines of a cluster, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox.errors import NotFound, SandboxError

if TYPE_CHECKING:
    from sandbox.cluster.nodes import RayNodes

PATIENCE = 5.0  # seconds that an agent has to answer


def nodes(cluster: RayNodes) -> list[dict[str, Any]]:
    """Each machine: its resources, and the state of its agent. This starts no agent where there is none."""
    found = []
    for one in cluster.alive():
        told: dict[str, Any] = {
            "node": one["NodeID"],
            "address": one["NodeManagerAddress"],
            "resources": one["Resources"],
        }
        if cluster.has_agent(one["NodeID"]):
            try:
                told |= cluster.ask(one["NodeID"], "status", timeout=PATIENCE)
            except SandboxError as problem:
                told["problem"] = str(problem)
        found.append(told)
    return found


def usage(cluster: RayNodes) -> list[dict[str, Any]]:
    """What each sandbox uses, on machines whose agents answer; the one with the most processor time first."""
    used: list[dict[str, Any]] = []
    for one in cluster.alive():
        if cluster.has_agent(one["NodeID"]):
            try:
                used += cluster.ask(one["NodeID"], "usage", timeout=PATIENCE)
            except SandboxError:
                continue
    return sorted(used, key=lambda one: -(one.get("cpu_ms") or 0))


def found(cluster: RayNodes, node: str) -> str:
    """The whole id of a machine, given its beginning. Raises NotFound."""
    known = [one["NodeID"] for one in cluster.alive() if node and one["NodeID"].startswith(node)]
    if len(known) != 1:
        raise NotFound("no node {node!r}, or more than one; see `sandbox cluster nodes`", node=node)
    return str(known[0])
