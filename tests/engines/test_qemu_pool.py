"""Pools of virtual machines: each waits running, and is handed out once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import Pool
from tests.pool.waiting import running, until, waiting
from tests.sandboxes import home

__all__ = ["home"]
pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("machines")]


def test_a_machine_that_is_ready_is_handed_out_and_never_again(home: Path) -> None:
    with Pool({"engine": "qemu"}, size=1) as pool:
        assert pool.fill(300)
        [ready] = [one.id for one in waiting(pool)]
        with pool.get(environment={"CASE": "7"}) as sandbox:
            assert (sandbox.id, sandbox.engine) == (ready, "qemu")
            assert sandbox.exec("echo $CASE; uptime -s; touch /tmp/mine", check=True).stdout.startswith("7\n")
        assert pool.fill(300)  # another one, which the first has left nothing in
        with pool.get() as other:
            assert other.id != ready and other.exec("test -e /tmp/mine").exit_code == 1
        assert pool.stats().empty == 0 and pool.stats().handed_out == 2
    until(lambda: not running(home))
