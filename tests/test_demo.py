"""`make demo`: what it tells, and that it is alone with what it leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.walls

DEMO = Path(__file__).parent.parent / "demo/run.py"


def test_the_walls_hold_and_processes_of_others_go_on() -> None:
    # As another demonstration at the same time, or anybody, could have it.
    with subprocess.Popen(["sleep", "31337"]) as other:
        try:
            done = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, check=False)
            assert other.poll() is None
        finally:
            other.kill()
    assert done.returncode == 0 and "16 of 16 attempts stopped" in done.stdout, done.stdout + done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("leave a process behind")]
    assert row.split()[4:6] == ["succeeds", "stopped"]  # without walls it can, and the demonstration sees that
