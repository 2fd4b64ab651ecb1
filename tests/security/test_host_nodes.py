"""What is the host's own but seen inside (device nodes, what /proc tells) cannot be changed, not even by a tenant who
is the host's root and so its owner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.process_walls("a machine's devices are its own")
def test_a_command_without_input_cannot_change_the_hosts_null_device(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        assert changed(sandbox, "attempt(0)") == ""


def test_what_proc_shows_of_the_machine_keeps_its_modes(tmp_path: Path) -> None:
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


@pytest.mark.process_walls("the streams of a command in a machine are the machine's own")
def test_nor_can_a_command_that_was_given_it_on_the_command_line(tmp_path: Path) -> None:
    code = "import os\nfor fd in 0, 2:\n try: os.fchmod(fd, 0o666)\n except OSError as problem: print(problem)"
    run = [sys.executable, "-m", "sandbox.cli.main", "run", "--root", str(tmp_path), "--", "/usr/bin/python3", "-c"]
    with open("/dev/null", "r+b", buffering=0) as null:
        done = subprocess.run([*run, code], stdin=null, stdout=subprocess.PIPE, stderr=null, text=True, check=True)
    assert done.stdout.count("Read-only") == 2


@pytest.mark.process_walls("a machine's /dev is its own, and not the tenant's")
def test_the_directory_of_devices_is_not_unbounded_scratch_space(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        assert "Read-only" in sandbox.exec("echo x > /dev/file").stderr


MOUNTED_LATER = """
import os, subprocess, sys
from sandbox import Sandbox
project, data = sys.argv[1:]
for one in project, data:
    subprocess.run(["mount", "--bind", "--make-shared", one, one], check=True)
    os.mkdir(f"{one}/later")
with Sandbox({"filesystem": {"root": project, "allow_read": [data]}}) as sandbox:
    for one in project, data:
        subprocess.run(["mount", "-t", "tmpfs", "none", f"{one}/later"], check=True)
        open(f"{one}/later/file", "w").close()
    print(sandbox.exec(f"ls {project}/later {data}/later; touch {data}/later/written && echo written").stdout)
"""


def test_what_the_host_mounts_later_is_not_visible(tmp_path: Path) -> None:
    project, data = tmp_path / "project", tmp_path / "data"
    for place in (project, data):
        place.mkdir()
    # In a namespace where mounts can be made, and are shared as systemd shares them.
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", MOUNTED_LATER]
    done = subprocess.run([*command, str(project), str(data)], capture_output=True, text=True, check=True)
    assert "file" not in done.stdout and "written" not in done.stdout
