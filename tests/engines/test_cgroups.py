"""Control groups of version 2, the tree as systemd keeps it. (This machine may have version 1: `make kernels`.)"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.engines import cgroup_tree
from tests.engines.test_limits import EAT, limited, with_groups

pytestmark = [
    with_groups,
    pytest.mark.skipif(
        not os.path.exists("/sys/fs/cgroup/cgroup.controllers"), reason="control groups here are of version 1"
    ),
]


def group_of_this_process() -> Path:
    """The directory of the group that holds a sandbox of ours."""
    return next(Path("/sys/fs/cgroup").glob(f"**/{cgroup_tree.PREFIX}*.{os.getpid()}.*"))


def test_limits_hold_when_systemd_switches_controllers_off_above_them(tmp_path: Path) -> None:
    # It does, whenever it starts a unit beside the sandbox's group: no unit of its own needs them there.
    with limited(tmp_path, memory="64m", cpus=1) as sandbox:
        above = group_of_this_process().parent / "cgroup.subtree_control"
        for controller in ("cpu", "memory"):
            with pytest.raises(OSError, match="busy"):
                above.write_text(f"-{controller}")
        assert sandbox.exec(["/usr/bin/python3", "-c", EAT]).out_of_memory


def test_tenants_are_in_the_group_and_their_owner_is_not(tmp_path: Path) -> None:
    with limited(tmp_path, memory="64m") as sandbox:
        inside = (group_of_this_process() / cgroup_tree.INSIDE / "cgroup.procs").read_text().split()
        assert str(sandbox._running.pid) in inside
        assert str(os.getpid()) not in inside


def test_two_sandboxes_of_one_owner_have_groups_of_their_own(tmp_path: Path) -> None:
    with limited(tmp_path, memory="64m") as small, limited(tmp_path, memory="512m") as large:
        code = "x = bytearray(b'x') * 200 * 2**20"
        assert large.exec(["/usr/bin/python3", "-c", code]).ok
        assert small.exec(["/usr/bin/python3", "-c", code]).out_of_memory
        assert not large.exec("true").out_of_memory


def test_sweeping_spares_the_living(tmp_path: Path) -> None:
    with limited(tmp_path, memory="64m"):
        cgroup_tree.sweep()
        assert group_of_this_process().is_dir()
