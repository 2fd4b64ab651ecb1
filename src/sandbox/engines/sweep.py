"""What owners that were killed left on the machine: `sandbox prune` has it taken away."""

from __future__ import annotations

from sandbox.engines import cgroup_tree


def sweep(home: str) -> None:
    """Everything outside the registry of `home` that belongs to nobody any more. Safe beside living sandboxes."""
    cgroup_tree.sweep()
