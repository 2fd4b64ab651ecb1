"""What is the host's own but seen inside (device nodes, what /proc tells) cannot be changed, not even by a tenant who
is the host's root and so its owner."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox import Sandbox

# Each change is one that does no harm where it succeeds.
ATTEMPTS = """
import os, stat
def refused(act, place, *args):
    try:
        act(place, *args)
    except OSError:
        return
    print('changed', place, act.__name__)
def attempt(place):
    refused(os.utime, place, (0, 0))
    refused(os.chmod, place, stat.S_IMODE(os.stat(place).st_mode))
    refused(os.chown, place, os.getuid(), os.getgid())
"""


def changed(sandbox: Sandbox, code: str) -> str:
    result = sandbox.exec(["python3", "-c", ATTEMPTS + code])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_device_nodes_keep_their_modes_and_times(tmp_path: Path) -> None:
    names = ("null", "zero", "full", "random", "urandom", "tty")
    before = [os.stat(f"/dev/{name}") for name in names]
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        assert changed(sandbox, f"for name in {names}: attempt('/dev/' + name)") == ""
        # They work all the same, and what is the sandbox's own in /dev is its own.
        done = sandbox.exec("echo x > /dev/null; head -c 3 /dev/zero | wc -c; echo y > /dev/shm/f")
        assert done.stdout.strip() == "3"
    assert [(one.st_mode, one.st_uid) for one in before] == [
        (one.st_mode, one.st_uid) for one in (os.stat(f"/dev/{name}") for name in names)
    ]


def test_a_command_without_input_cannot_change_the_hosts_null_device(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        assert changed(sandbox, "attempt(0)") == ""


def test_what_proc_tells_of_the_machine_keeps_its_modes(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        # Two levels, without the processes' own files, which are theirs.
        code = """
for top, below, files in os.walk('/proc'):
    below[:] = [one for one in below if top == '/proc' and not one.isdigit()]
    for name in files:
        if not os.path.islink(f'{top}/{name}'):
            attempt(f'{top}/{name}')
"""
        assert changed(sandbox, code) == ""
