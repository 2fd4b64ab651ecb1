"""Files that the kernel and the host share with every sandbox: device files, /proc, mounts that come later.

A tenant of root is their owner, capability or not, so each attempt here asks for what is so already: where a wall is
missing the test fails and the machine is as before.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.security.conftest import Probe

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


@pytest.mark.parametrize("name", DEVICES)
def test_device_files_of_the_host_cannot_be_changed(sandbox: Sandbox, name: str) -> None:
    for attempt in (f"chmod 666 /dev/{name}", f"chown $(id -u) /dev/{name}", f"rm /dev/{name}", f"mv /dev/{name} /tmp"):
        assert sandbox.exec(attempt).exit_code != 0, attempt


def test_nor_by_a_descriptor_of_one(probe: Probe) -> None:
    assert "Read-only" in probe("assert os.fstat(0).st_rdev == os.makedev(1, 3); os.fchmod(0, 0o666)").stderr


def test_nor_by_one_that_the_command_line_gave(project: Path) -> None:
    code = "import os\nfor fd in 0, 2:\n try: os.fchmod(fd, 0o666)\n except OSError as problem: print(problem)"
    command = [sys.executable, "-m", "sandbox.cli.main", "run", "--root", str(project), "--", "/usr/bin/python3", "-c", code]
    with open("/dev/null", "r+b", buffering=0) as null:
        done = subprocess.run(command, stdin=null, stdout=subprocess.PIPE, stderr=null, text=True, check=True)
    assert done.stdout.count("Read-only") == 2


def test_devices_still_work(sandbox: Sandbox) -> None:
    for use in ("echo x > /dev/null", "head -c 9 /dev/urandom > /dev/zero", "exec 3<> /dev/null", ": >| /dev/null"):
        assert sandbox.exec(use).exit_code == 0, use
    assert sandbox.exec("echo x > /dev/full").exit_code != 0


def test_their_directory_is_no_scratch_place_without_a_bound(sandbox: Sandbox) -> None:
    assert "Read-only" in sandbox.exec("echo x > /dev/file").stderr


@pytest.mark.parametrize("name", ["execdomains", "kallsyms", "tty/drivers", "net/dev", "sysvipc/shm", "1/status"])
def test_modes_in_proc_are_the_machines_not_a_tenants(sandbox: Sandbox, name: str) -> None:
    assert sandbox.exec(f"chmod 444 /proc/{name}").exit_code != 0


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


def test_what_the_host_mounts_later_is_not_there(project: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    # In a namespace where mounts can be made, and are shared as systemd shares them.
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", MOUNTED_LATER]
    done = subprocess.run([*command, str(project), str(data)], capture_output=True, text=True, check=True)
    assert "file" not in done.stdout and "written" not in done.stdout
