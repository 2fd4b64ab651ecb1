"""A virtual machine is paused, saved and forked whole: memory, processes and files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox, SandboxError

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("machines")]

COUNTING = """
import os, time
open_file = open("held", "w")
read_file = open("shared")
gone = open("gone", "w+"); os.unlink("gone")
n = 0
print("up", flush=True)
while True:
    n += 1
    open_file.write(f"{n}\\n"); open_file.flush()
    open("/tmp/count.new", "w").write(str(n)); os.rename("/tmp/count.new", "/tmp/count")
    time.sleep(0.02)
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "shared").write_text("host\n")
    (made / "counting.py").write_text(COUNTING)
    return made


@pytest.fixture
def sandbox(project: Path) -> Iterator[Sandbox]:
    config = {"engine": "qemu", "filesystem": {"root": str(project), "overlay": True}}
    with Sandbox(config) as made, made.spawn(["python3", "counting.py"]) as program:
        assert program.read().startswith(b"up")
        made.exec("echo mine > ~/note; echo tmp > /tmp/note; echo changed > shared", check=True)
        yield made


def count(sandbox: Sandbox) -> int:
    return int(sandbox.exec("cat /tmp/count", check=True).stdout)


def counts(sandbox: Sandbox) -> bool:
    """Whether the program in it goes on."""
    before = count(sandbox)
    deadline = time.monotonic() + 60
    while count(sandbox) == before:
        assert time.monotonic() < deadline
    return True


def test_forks_continue_with_memory_processes_and_files(sandbox: Sandbox) -> None:
    one, two = sandbox.fork(2)
    with one, two:
        for fork in (one, two):
            assert counts(fork)
            assert fork.exec("cat ~/note /tmp/note shared").stdout == "mine\ntmp\nchanged\n"
            assert fork.exec("pgrep -fc [c]ounting.py").stdout == "1\n"
            assert int(fork.exec("tail -n 1 held").stdout) > 0  # an open file goes on, too
        one.exec("echo one > shared; echo one > ~/note", check=True)
        assert two.exec("cat shared ~/note").stdout == "changed\nmine\n"
        assert sandbox.exec("cat shared ~/note").stdout == "changed\nmine\n"
        with one.fork()[0] as grandchild:
            assert counts(grandchild)
    assert counts(sandbox)


def test_no_two_machines_have_the_same_name_randomness_or_time(sandbox: Sandbox) -> None:
    one, two = sandbox.fork(2)
    with one, two:
        three = (sandbox, one, two)
        assert len({each.exec("hostname").stdout for each in three}) == 3
        assert len({each.exec("head -c 16 /dev/urandom | od -An -tx1").stdout for each in three}) == 3
        for each in three:
            before = time.time()
            told = float(each.exec("date +%s.%N").stdout)
            assert before - 1 < told < time.time() + 1, each.id


def test_a_checkpoint_is_restored_after_its_sandbox_has_ended(sandbox: Sandbox) -> None:
    checkpoint = sandbox.checkpoint("warm")
    assert checkpoint.saves == "machine"
    assert len(checkpoint.lost) == 1  # `gone`
    sandbox.close()
    with Sandbox.restore("warm") as restored:
        assert counts(restored)
        assert any("without a name" in notice for notice in restored.notices)


def test_a_damaged_memory_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.checkpoint("warm")
    memory = tmp_path / "home/checkpoints/warm/machine/memory"
    with open(memory, "r+b") as file:
        file.seek(1 << 20)
        byte = file.read(1)
        file.seek(1 << 20)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(SandboxError, match="damaged"):
        Sandbox.restore("warm")


def test_a_paused_machine_does_not_run_and_has_the_right_time_afterwards(sandbox: Sandbox) -> None:
    sandbox.pause()
    with pytest.raises(SandboxError, match="is paused"):
        sandbox.exec("true")
    with sandbox.fork()[0] as fork:  # also of one that is paused
        assert counts(fork)
    sandbox.resume()
    assert counts(sandbox)
    before = time.time()
    assert before - 1 < float(sandbox.exec("date +%s.%N").stdout) < time.time() + 1


def test_what_the_host_edits_meanwhile_is_seen_after_a_restore(sandbox: Sandbox, project: Path) -> None:
    (project / "edited").write_text("before")
    assert sandbox.exec("cat edited").stdout == "before"
    sandbox.checkpoint("warm")
    sandbox.close()
    (project / "edited.new").write_text("after!")
    (project / "edited.new").rename(project / "edited")
    with Sandbox.restore("warm") as restored:
        deadline = time.monotonic() + 20
        while restored.exec("cat edited").stdout != "after!":
            assert time.monotonic() < deadline


def test_links_lead_where_they_lead_now_after_a_restore(sandbox: Sandbox, project: Path) -> None:
    def point(name: str, target: str) -> None:
        (project / name).unlink(missing_ok=True)
        (project / name).symlink_to(target)

    for name in ("turned", "made again"):
        point(name, "shared")
    (project / "other").write_text("other\n")
    assert sandbox.exec("cat turned 'made again'").stdout == "changed\n" * 2
    sandbox.checkpoint("warm")
    sandbox.close()
    point("turned", "other")
    point("made again", "shared")
    with Sandbox.restore("warm") as restored:
        deadline = time.monotonic() + 20
        while restored.exec("cat turned 'made again'").stdout != "other\nchanged\n":
            assert time.monotonic() < deadline
        assert restored.exec("readlink turned 'made again'").stdout == "other\nshared\n"


def test_a_connection_of_the_machine_is_reset_in_a_fork(sandbox: Sandbox) -> None:
    script = (
        "import socket, os, time\n"
        "s = socket.create_connection(('198.18.0.9', 80)); s.sendall(b'GET')\n"
        "print('open', flush=True)\n"
        "s.settimeout(60)\n"
        "while not os.path.exists('/tmp/go'): time.sleep(0.05)\n"
        "try:\n    s.sendall(b' / HTTP/1.1'); time.sleep(1); s.sendall(b'x'); s.recv(1); print('alive')\n"
        "except OSError as e: open('/tmp/answer', 'w').write(type(e).__name__)\n"
    )
    sandbox.write_file("connect.py", script.encode())
    with sandbox.spawn(["python3", "connect.py"]) as program:
        assert program.read().startswith(b"open")
        with sandbox.fork()[0] as fork:
            fork.exec("touch /tmp/go", check=True)
            answer = fork.exec("for i in $(seq 200); do cat /tmp/answer 2>/dev/null && break; sleep 0.1; done").stdout
            assert answer in ("ConnectionResetError", "BrokenPipeError")
