"""Root of a machine does what no tenant of a process wall can: stops its kernel, and speaks in its guest's place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.errors import CommandError, GuestError, SandboxError
from sandbox.guest import bridge_jobs, framed
from sandbox.host_process import descendants
from tests.patience import until

pytestmark = [pytest.mark.walls, pytest.mark.vm, pytest.mark.usefixtures("machines")]

#: Nothing else of the machine runs from now on, not even its guest.
HANG = "echo -1 > /proc/sys/kernel/sched_rt_runtime_us && echo begun && exec chrt -f 99 sh -c 'while :; do :; done'"
SLEEP = "echo begun && echo mem > /sys/power/state"

#: Speaks to the owner over the guest's own port, which root takes out of process 1.
TAKE_OVER = """
import ctypes, os, struct
call = ctypes.CDLL(None).syscall
port = call(438, call(434, 1, 0), 3, 0)  # pidfd_getfd(pidfd_open(1), 3)
assert port >= 0
READY = b"\\xa3" + b"\\x61t" + b"\\x65ready" + b"\\x67sockets" + b"\\x80" + b"\\x64have" + b"\\xa0"
os.write(port, (struct.pack("<I", len(READY)) + READY) * 1000)  # as much as the port takes at once
"""

#: Lets its machine be saved, and takes all of a fork's processor before that has said that it is ready.
TRAP = """
import os, time
with open("/proc/sys/kernel/sched_rt_runtime_us", "w") as file:
    file.write("-1")
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
name = os.uname().nodename
print("begun", flush=True)
while os.uname().nodename == name:
    time.sleep(0.002)
while True:
    pass
"""


def machine(root: Path) -> Sandbox:
    return Sandbox({"engine": "qemu", "user": "root", "filesystem": {"root": str(root)}})


@pytest.mark.parametrize("script", [HANG, SLEEP], ids=["hangs", "sleeps"])
def test_the_timeout_of_a_command_holds_in_a_machine_that_does_not_answer_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(bridge_jobs, "END_MOST", 2.0)
    with machine(tmp_path) as sandbox:
        assert sandbox._running.pid is not None
        processes = [sandbox._running.pid, *descendants(sandbox._running.pid)]
        with pytest.raises(GuestError):
            sandbox.exec(script, timeout=3)
        with pytest.raises(SandboxError):
            sandbox.exec("true")
    until(lambda: not [pid for pid in processes if os.path.exists(f"/proc/{pid}")])


def test_nobody_waits_without_end_for_a_file_of_such_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with machine(tmp_path) as sandbox, sandbox.spawn(HANG) as hanging:
        assert hanging.read() == b"begun\n"
        monkeypatch.setattr(bridge_jobs, "ANSWER_MOST", 3.0)
        with pytest.raises(OSError):
            while True:  # the machine stands still a moment after it has said so
                sandbox.read_file("/etc/hostname")
        with pytest.raises(CommandError):
            sandbox.exec("true")


def test_what_root_says_in_the_guests_place_costs_the_owner_no_descriptors(tmp_path: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    with machine(tmp_path) as sandbox:
        sandbox.write_file("/tmp/take_over.py", TAKE_OVER)
        before = opened()
        with pytest.raises(SandboxError):
            sandbox.exec(["/usr/bin/python3", "/tmp/take_over.py"], check=True)
        assert opened() < before + 100  # not one for each of thousands


def test_a_fork_that_never_gets_ready_is_given_up_and_the_original_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framed, "_READY", 5.0)
    with machine(tmp_path) as sandbox, sandbox.spawn(["/usr/bin/python3", "-c", TRAP]) as trap:
        assert trap.read() == b"begun\n"
        before = descendants(os.getpid())
        with pytest.raises(GuestError, match="does not answer"):
            sandbox.fork(2)
        until(lambda: not set(descendants(os.getpid())) - set(before))
        assert sandbox.exec("echo goes on").stdout == "goes on\n"
