"""Whichever process around a machine is killed, the sandbox ends, says so, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.errors import SandboxError
from sandbox.host_process import descendants
from tests.patience import until

pytestmark = [pytest.mark.walls, pytest.mark.usefixtures("machines")]

OWNER = """
import sys
from sandbox import Sandbox
from sandbox.host_process import descendants
sandbox = Sandbox({"engine": "qemu", "filesystem": {"root": sys.argv[1]}})
sandbox.exec(["true"], check=True)
print(sandbox._running.pid, *descendants(sandbox._running.pid), flush=True)
sys.stdin.read()
"""


def words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (OSError, IndexError):
        return False


def chain(room: int) -> list[int]:
    return [room, *descendants(room)]


CHAIN: dict[str, Callable[[int], bool]] = {
    "QEMU": lambda pid: b"qemu-system" in words(pid)[0],
    "the system's file server": lambda pid: b"--share-system" in words(pid),
    "the room's file server": lambda pid: b"--share" in words(pid),
}


@pytest.mark.parametrize("which", [*CHAIN, "the room's guest"])
def test_a_killed_process_ends_the_sandbox_with_an_error_and_nothing_is_left(tmp_path: Path, which: str) -> None:
    with Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path)}}) as sandbox:
        room = sandbox._running.pid
        assert room is not None and sandbox.exec("echo before").stdout == "before\n"
        processes = chain(room)
        (victim,) = [room] if which not in CHAIN else [pid for pid in processes[1:] if CHAIN[which](pid)]
        os.kill(victim, signal.SIGKILL)
        until(lambda: not is_alive(victim))
        with pytest.raises(SandboxError):
            for _ in range(100):  # the first may just have been told that its file cannot be read
                sandbox.exec(["/usr/bin/env", "true"])
    until(lambda: not [pid for pid in processes if is_alive(pid)])


def test_a_killed_owner_takes_the_machine_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        processes = [int(word) for word in owner.stdout.readline().split()]
        assert any(b"qemu-system" in words(pid)[0] for pid in processes)
        owner.kill()
    until(lambda: not [pid for pid in processes if is_alive(pid)])
