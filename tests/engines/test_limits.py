"""A limit that was asked for is held, or it is an error."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import Config, ConfigError, LimitUnavailable, Sandbox
from sandbox.audit.reading import entries
from sandbox.config.home import record_directory

EAT = "x = bytearray()\nwhile True: x += bytes(2**20); x[-1] = 1"


# An ordinary user has control groups where systemd delegates one, which whoever runs the tests says: `make kernels`.
GROUPS = os.geteuid() == 0 or "DELEGATED" in os.environ
with_groups = pytest.mark.skipif(not GROUPS, reason="no control group is delegated to this user")
without_groups = pytest.mark.skipif(GROUPS, reason="there are control groups")


def limited(root: Path, **limits: object) -> Sandbox:
    return Sandbox({"filesystem": {"root": str(root)}, "limits": limits})


@with_groups
def test_out_of_memory_is_reported_as_such_with_limit_and_peak(tmp_path: Path) -> None:
    with limited(tmp_path, memory="64m") as sandbox:
        result = sandbox.exec(["/usr/bin/python3", "-c", EAT])
        assert result.out_of_memory
        assert result.note == "out of memory: the limit is 64 MiB, the peak was 64 MiB"
        assert result.signal == 9
        # The next one starts with a clean slate, and a failure of its own is not blamed on memory.
        after = sandbox.exec("exit 3")
        assert (after.exit_code, after.out_of_memory) == (3, False)


@with_groups
def test_memory_is_counted_over_all_processes_and_scratch_files(tmp_path: Path) -> None:
    with limited(tmp_path, memory="64m") as sandbox:
        assert sandbox.exec("head -c 200000000 /dev/zero > /tmp/big").out_of_memory


@with_groups
def test_processors_are_shared_out(tmp_path: Path) -> None:
    with limited(tmp_path, cpus=0.2) as sandbox:
        # What one busy second takes of a processor, without what it takes to start.
        busy = (
            "import time; t, used = time.time(), time.process_time()\n"
            "while time.time() - t < 1: pass\n"
            "print(time.process_time() - used)"
        )
        assert float(sandbox.exec(["/usr/bin/python3", "-c", busy]).stdout) < 0.5


@without_groups
def test_memory_without_a_control_group_is_held_per_process(tmp_path: Path) -> None:
    with limited(tmp_path, memory="200m") as sandbox:
        assert "MemoryError" in sandbox.exec(["/usr/bin/python3", "-c", EAT]).stderr


FILL = """
import os, sys
total = 0
for place in ("/tmp", "/dev/shm", "/run", os.environ["HOME"], "/mem"):
    try:
        with open(f"{place}/big", "wb", buffering=0) as file:
            while total < 10**9: total += file.write(bytes(2**16))
    except OSError:
        pass
print(total)
"""
HIDE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
try: print(os.memfd_create("x"))
except OSError as problem: print(problem.strerror)
print(libc.shmget(0, ctypes.c_size_t(2**20), 0o1600), libc.shmget(0, ctypes.c_size_t(2**32), 0o1600))
print(libc.shmget(0, ctypes.c_size_t(56), 0o1600) >= 0)
"""


@without_groups
def test_without_a_control_group_all_files_in_memory_share_the_limit(tmp_path: Path) -> None:
    asked = {"filesystem": {"root": str(tmp_path)}, "limits": {"memory": "64m"}}
    mounts = {"vfs": {"mounts": {"/mem": {"type": "memory", "size": "1g"}}}}
    with Sandbox({**asked, **mounts}) as sandbox:
        filled = int(sandbox.exec(["/usr/bin/python3", "-c", FILL]).stdout)
    assert 32 * 2**20 < filled <= 64 * 2**20


@without_groups
def test_without_a_control_group_uncounted_memory_is_refused(tmp_path: Path) -> None:
    with limited(tmp_path, memory="200m") as sandbox:
        seen = sandbox.exec(["/usr/bin/python3", "-c", HIDE])
    assert seen.stdout == "Function not implemented\n-1 -1\nTrue\n"
    with limited(tmp_path) as sandbox:
        assert "Function not implemented" not in sandbox.exec(["/usr/bin/python3", "-c", HIDE]).stdout


@without_groups
def test_what_cannot_be_held_of_a_memory_limit_is_said_at_the_start_and_recorded(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "sandbox", "run", "--memory", "64m", "--", "echo", "ran"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "ran\n"
    assert "limits.memory: no control group can be made here, so the limit applies to each process" in done.stderr
    with limited(tmp_path, memory="64m") as sandbox:
        assert len(sandbox.notices) == 1
        identity = sandbox.id
    told = [str(one) for one in entries(record_directory(Config())) if identity in str(one)]
    assert any("no control group" in one for one in told), told


@with_groups
def test_a_memory_limit_that_is_held_says_nothing(tmp_path: Path) -> None:
    with limited(tmp_path, memory="64m") as sandbox:
        assert sandbox.notices == []
        assert int(sandbox.exec(["/usr/bin/python3", "-c", "import os; print(os.memfd_create('x'))"]).stdout) >= 0


def test_memory_in_which_nothing_can_start_is_refused_with_the_least_that_works(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"limits\.memory: 1024 bytes are too few .* the minimum is 8m"):
        limited(tmp_path, memory="1k")
    with limited(tmp_path, memory="8m") as sandbox:
        assert sandbox.exec("echo ok").stdout == "ok\n"


@without_groups
def test_a_limit_that_cannot_be_held_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LimitUnavailable, match=r"limits\.cpus needs a control group"):
        limited(tmp_path, cpus=0.5)


def test_a_fork_bomb_stops_at_the_limit_on_processes(tmp_path: Path) -> None:
    with limited(tmp_path, pids=20) as sandbox:
        result = sandbox.exec("for i in $(seq 100); do sleep 1000 & done; wait", timeout=20)
        assert "fork" in result.stderr or "retry" in result.stderr
        result = sandbox.exec("true", timeout=20)
    with limited(tmp_path, pids=20) as sandbox:
        assert sandbox.exec("echo ok").stdout == "ok\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="for root it must be asked for: docs/limits.md")
def test_a_fork_bomb_stops_by_default(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        assert sandbox.exec(["bash", "-c", "ulimit -u"]).stdout.strip() == "4097"


FORKS = """
import os, resource, signal
count, most = 0, resource.getrlimit(resource.RLIMIT_NPROC)[0]
if os.getuid() and most < 5000:
    print(most - 1)  # which holds; to make that many takes minutes
    raise SystemExit
try:
    while count < 5000:
        if os.fork() == 0: signal.pause()
        count += 1
except OSError: pass
print(count)
"""


def test_a_projects_file_raises_no_limit_of_the_modes_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    (project / ".sandbox").mkdir(parents=True)
    (project / ".sandbox" / "config.yaml").write_text("limits: {pids: 1000000}\n")
    mode, most = ("max", 512) if GROUPS else ("standard", 4096)
    words = [sys.executable, "-m", "sandbox", "run", "--mode", mode, "--", "/usr/bin/python3", "-c", FORKS]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert most - 20 < int(done.stdout) <= most
    assert f"the limit is already {most}" in done.stderr


def test_two_sandboxes_do_not_share_a_limit_on_processes(tmp_path: Path) -> None:
    with limited(tmp_path, pids=20) as one, limited(tmp_path, pids=20) as other:
        one.exec("for i in $(seq 15); do sleep 1000 & done")
        assert other.exec("for i in $(seq 15); do sleep 1000 & done; echo ok").stdout == "ok\n"


def test_the_largest_file_is_bounded(tmp_path: Path) -> None:
    with limited(tmp_path, file_size="1m") as sandbox:
        assert sandbox.exec("head -c 3000000 /dev/zero > big").exit_code != 0
    assert (tmp_path / "big").stat().st_size == 2**20


def test_open_files_are_bounded(tmp_path: Path) -> None:
    with limited(tmp_path, open_files=16) as sandbox:
        code = "x = [open('/dev/null') for _ in range(30)]"
        assert "Too many open files" in sandbox.exec(["/usr/bin/python3", "-c", code]).stderr


@with_groups
def test_mode_max_limits_what_was_not_limited(tmp_path: Path) -> None:
    with Sandbox({"mode": "max", "filesystem": {"root": str(tmp_path)}}) as sandbox:
        assert sandbox.config.limits.memory == 2**30
        assert sandbox.exec("ulimit -n").stdout == "1024\n"


QUEUE_ALL = """
import ctypes, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
while ctypes.CDLL(None).sigqueue(os.getpid(), int(signal.SIGRTMIN), ctypes.c_void_p(1)) == 0: pass
print(flush=True)
sys.stdin.read()
"""


def test_pending_signals_which_are_counted_for_the_whole_user_are_left_to_the_host(tmp_path: Path) -> None:
    with (
        Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox,
        sandbox.spawn(["/usr/bin/python3", "-c", QUEUE_ALL]) as greedy,
    ):
        assert greedy.read() == b"\n"
        timer, libc = ctypes.c_void_p(), ctypes.CDLL(None)
        assert libc.timer_create(0, None, ctypes.byref(timer)) == 0  # needs one to be left
        libc.timer_delete(timer)
