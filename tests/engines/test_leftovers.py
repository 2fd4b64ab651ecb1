"""Nothing is left: no process, no control group, no directory, whatever happened to the owner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import ConfigError, Sandbox, WallError
from sandbox.engines import cgroup_tree
from sandbox.plan.plan import Plan
from tests.engines.test_limits import with_groups
from tests.patience import assert_given_back, open_descriptors

OWNER = """
import signal, sys
from sandbox import Sandbox
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored (nohup)
sandbox = Sandbox({"filesystem": {"root": sys.argv[1]}, "limits": {"pids": 50, "memory": "512m"}})
process = sandbox._spawn("sleep 1000 & setsid sh -c 'echo up; exec sleep 1000'", stdio=(None, None, int(sys.argv[2])))
assert process.read() == b"up\\n"
print("ready", flush=True)
sys.stdin.read()
"""


def groups() -> set[str]:
    found = set()
    for directory, names, _ in os.walk("/sys/fs/cgroup"):
        found |= {f"{directory}/{name}" for name in names if name.startswith(cgroup_tree.PREFIX)}
    return found


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that owns a sandbox with background processes, and a pipe that ends when the last of these has."""
    read, write = os.pipe()
    command = [sys.executable, "-c", OWNER, str(tmp_path), str(write)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[write]) as process:
        os.close(write)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process, read
        process.kill()
    os.close(read)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_when_the_owner_is_killed_every_tenant_dies(owner: tuple[subprocess.Popen[bytes], int], how: int) -> None:
    process, alive = owner
    process.send_signal(how)
    process.wait()
    assert os.read(alive, 1) == b""


def test_when_the_owner_ends_without_closing_every_tenant_dies(owner: tuple[subprocess.Popen[bytes], int]) -> None:
    process, alive = owner
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    assert os.read(alive, 1) == b""


def test_an_owner_that_forked_and_died_leaves_no_tenant(tmp_path: Path) -> None:
    # The fork holds copies of every socket; only the pidfd tells that the owner itself is gone.
    code = OWNER.replace("sys.stdin.read()", "import os\nif os.fork(): sys.stdin.readline(); os._exit(1)\nos.pause()")
    code = code.replace("os.pause()", "signal.pause()")
    with open(os.devnull, "wb") as null:
        command = [sys.executable, "-c", code, str(tmp_path), str(null.fileno())]
        owner = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[null.fileno()], process_group=0
        )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        while len(tenants := _tenants_of(tmp_path)) < 2:
            pass  # forked, not yet `sleep`
        pidfds = [os.pidfd_open(pid) for pid in tenants]
        owner.kill()
        for pidfd in pidfds:
            assert select.select([pidfd], [], [], 30)[0], "a tenant outlived its owner"
            os.close(pidfd)
        os.killpg(owner.pid, signal.SIGKILL)


def _tenants_of(project: Path) -> list[int]:
    """The `sleep`s that stand in a directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            here = os.readlink(f"/proc/{pid}/cwd") == str(project)
            with open(f"/proc/{pid}/comm") as name:
                if here and name.read() == "sleep\n":
                    found.append(int(pid))
        except OSError:
            continue
    return found


@with_groups
def test_control_groups_of_a_killed_owner_are_swept_by_the_next_start(
    owner: tuple[subprocess.Popen[bytes], int], tmp_path: Path
) -> None:
    process, alive = owner
    mine = f".{process.pid}."
    assert [one for one in groups() if mine in one]
    process.kill()
    process.wait()
    assert os.read(alive, 1) == b""
    with Sandbox({"filesystem": {"root": str(tmp_path)}, "limits": {"pids": 50, "memory": "512m"}}):
        assert not [one for one in groups() if mine in one]
    assert not [one for one in groups() if f".{os.getpid()}." in one]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The launchers that are started from now on."""
    found: list[int] = []
    spawn = os.posix_spawn

    def counting(*args: object, **more: object) -> int:
        found.append(spawn(*args, **more))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(os, "posix_spawn", counting)
    return found


def test_a_configuration_that_cannot_be_used_leaves_nothing(started: list[int]) -> None:
    before = open_descriptors()
    with pytest.raises(ConfigError, match="contains the system"):
        Sandbox({"filesystem": {"root": "/"}})
    assert_given_back(before)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_walls_that_cannot_be_built_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[int]
) -> None:
    def broken(plan: Plan, stage: str) -> dict[str, object]:
        return {"walls": True, "mounts": [{"kind": "bind", "path": b"/nowhere", "from": b"/nowhere"}]}

    monkeypatch.setattr(Plan, "setup", broken)
    before = open_descriptors()
    with pytest.raises(WallError, match="mounts"):
        Sandbox({"filesystem": {"root": str(tmp_path)}})
    assert_given_back(before)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_sandboxes_give_back_every_descriptor(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        sandbox.exec("true")
    before = open_descriptors()
    for _ in range(5):
        with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
            sandbox.exec("echo x", stdin="y")
            sandbox.write_file("a", "b")
            sandbox.read_file("a")
            sandbox.exec("true")
    assert_given_back(before)


def test_a_sandbox_that_is_forgotten_is_ended(tmp_path: Path) -> None:
    read, write = os.pipe()
    sandbox = Sandbox({"filesystem": {"root": str(tmp_path)}})
    sandbox._spawn("sleep 1000", stdio=(None, None, write))
    os.close(write)
    del sandbox
    assert os.read(read, 1) == b""
    os.close(read)
