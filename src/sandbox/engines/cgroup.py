"""Which limits need a control group here, and the error when none can be made."""

from __future__ import annotations

import os

from sandbox.errors import LimitUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Limits
    from sandbox.engines.cgroup_limits import Group


def hold(limits: Limits, pids: int | None, identity: str) -> Group | None:
    """A group that holds the limits, or None when no limit needs one or rlimits must do instead.

    `pids` is the limit on processes, configured or by default. Raises LimitUnavailable for a limit that was asked for
    and that neither a group nor an rlimit can hold here.
    """
    wanted = {
        name for name, value in (("memory", limits.memory), ("cpu", limits.cpus), ("pids", pids)) if value is not None
    }
    if os.geteuid() != 0:
        wanted -= {"pids"}  # RLIMIT_NPROC counts per user namespace, so it holds for exactly one sandbox
    if not wanted:
        return None
    # Imported here, because most sandboxes need no group.
    from sandbox.engines import cgroup_tree
    from sandbox.engines.cgroup_limits import Group

    made = cgroup_tree.make(wanted, identity)
    if made is None:
        _refuse_what_needs_one(limits)
        return None
    group = Group(*made)
    try:
        group.apply(limits, pids if group.holds("pids") else None)
    except BaseException:
        group.remove()
        raise
    return group


def _refuse_what_needs_one(limits: Limits) -> None:
    """Memory falls back to an rlimit per process; the rest has no fallback."""
    root = os.geteuid() == 0
    for name, value, needs in (("cpus", limits.cpus, True), ("pids", limits.pids, root)):
        if value is None or not needs:
            continue
        if root:
            raise LimitUnavailable(
                "limits.{name} needs a control group, and none can be made here: /sys/fs/cgroup "
                "is read-only or lacks the controller (start a container with `--privileged`)",
                name=name,
            )
        raise LimitUnavailable(
            "limits.{name} needs a control group, and none can be made here: no cgroup v2 is "
            "delegated to this user (try `systemd-run --user --scope -p Delegate=yes …`) and v1 "
            "needs root",
            name=name,
        )
