"""`network.gate: client` over a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.test_cluster import agent_of, in_memory
from tests.network.room import Origin, origin

__all__ = ["origin"]
VALUE = "sk-at-home-of-a-cluster-2b7c9d04"  # of its own: an agent may remember what other tests gave it


def test_with_the_gate_at_home_connections_are_made_from_here(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: Origin
) -> None:
    """The agent's process dials nothing: the record of what was allowed is this machine's own."""
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    secrets = {"KEY": {"value": VALUE, "hosts": ["api.test"]}}
    network = {"gate": "client", "localhost_ports": [origin.port], "secrets": secrets}
    with cluster.sandbox({"network": network, "environment": {"set": {"KEY": "${KEY}"}}}) as sandbox:
        got = sandbox.exec(f"curl -sS http://127.0.0.1:{origin.port}/x", check=True)
        assert got.stdout.startswith("GET /x")
        assert sandbox.exec("echo $KEY").stdout.startswith("SANDBOX_PLACEHOLDER_")
        if os.geteuid() == 0:
            assert not in_memory(str(agent_of(cluster, sandbox.node)["pid"]), VALUE.encode())
    record = (tmp_path / "home" / "audit" / "audit.jsonl").read_text()
    assert f"network allowed: CONNECT host.sandbox.internal:{origin.port}" in record and sandbox.id in record
