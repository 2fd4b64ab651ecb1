"""The registry as its users and its neighbours see it."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox import NotFound, Sandbox, SandboxError, get_vm, list_vms
from sandbox.registry import remove
from sandbox.registry.process_identity import identity
from sandbox.registry.registration import Registration
from sandbox.registry.registry import Entry, entries, find
from tests.sandboxes import address

pytestmark = pytest.mark.walls

CONFIG = {"image": "standard", "network": {"secrets": {"KEY": {"value": "[redacted]", "hosts": []}}}}


def registered(home: Path, id: str, command: list[str] | None = None) -> Registration:
    return Registration(str(home), id, CONFIG, command)


def ended_owner(home: Path, id: str) -> None:
    """An entry whose owner was killed without a chance to say so."""
    source = f"""
import os, signal
from sandbox.registry.registration import Registration
Registration({str(home)!r}, {id!r}, {{"image": None}}, ["bash"])
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", source], check=False).returncode == -9


def test_an_entry_has_the_layout_that_the_seed_draws(home: Path) -> None:
    registration = registered(home, "vm-a1b2c3d4", ["python", "script.py"])
    place = home / "vms" / "vm-a1b2c3d4"
    assert (place / "pid").read_text().splitlines()[0] == str(os.getpid())
    assert (place / "status").read_text() == "running"
    assert (place / "created_at").read_text().isdigit()
    assert json.loads((place / "config.json").read_text())["image"] == "standard"
    assert (place / "logs").is_dir()
    registration.end()
    assert (place / "status").read_text() == "stopped"
    assert not (place / "pid").exists()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_can_look_whatever_the_umask(home: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Sandbox() as sandbox:
            place = home / "vms" / sandbox.id
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (home, home / "vms", place, *place.iterdir())}
    finally:
        os.umask(before)
    for path, mode in modes.items():
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_living_sandbox_is_listed_as_running_with_its_command(home: Path) -> None:
    config = {"image": "standard", "image_names": {"standard": "host"}}
    with Sandbox(config, command=["python", "script.py"]) as sandbox:
        (entry,) = list_vms(status="running")
        assert (entry.id, entry.pid, entry.image) == (sandbox.id, os.getpid(), "standard")
        assert entry.command == ["python", "script.py"]
    assert list_vms(status="running") == []
    assert get_vm(sandbox.id).status == "stopped"


def test_a_secret_is_in_no_file_of_the_registry(home: Path) -> None:
    secret = "sk-not-to-be-seen-anywhere"
    config = {"network": {"secrets": {"KEY": {"value": secret, "hosts": ["api.openai.com"]}}}}
    with Sandbox(config) as sandbox:
        sandbox.exec("true")
        for directory, _, names in os.walk(home):
            for name in names:
                path = Path(directory, name)
                if path.is_file():
                    assert secret.encode() not in path.read_bytes(), path


def test_an_owner_that_was_killed_is_found_and_marked(home: Path) -> None:
    ended_owner(home, "vm-00000001")
    assert find(str(home), "vm-00000001").status == "crashed"
    assert (home / "vms" / "vm-00000001" / "status").read_text() == "crashed"


def test_a_pid_that_another_process_has_now_is_not_taken_for_the_owner(home: Path) -> None:
    ended_owner(home, "vm-00000002")
    file = home / "vms" / "vm-00000002" / "pid"
    lines = file.read_text().splitlines()
    file.write_text(f"{os.getpid()}\n{lines[1]}\n")  # the number is alive, the start is another's
    assert find(str(home), "vm-00000002").status == "crashed"


def test_an_id_may_be_shortened_while_it_is_unique(home: Path) -> None:
    first, second = registered(home, "vm-aa110000"), registered(home, "vm-aa220000")
    assert find(str(home), "vm-aa1").id == "vm-aa110000"
    assert find(str(home), "aa2").id == "vm-aa220000"
    for unclear in ("vm-aa", "zz", ""):
        with pytest.raises(NotFound):
            find(str(home), unclear)
    first.end()
    second.end()


def test_a_running_sandbox_cannot_be_removed(home: Path) -> None:
    registration = registered(home, "vm-00000003")
    with pytest.raises(SandboxError, match="kill"):
        remove.remove(find(str(home), registration.id))
    registration.end()
    remove.remove(find(str(home), registration.id))
    assert entries(str(home)) == []


def test_prune_takes_ended_ones_and_half_made_ones_and_leaves_the_living(home: Path) -> None:
    living = registered(home, "vm-00000004")
    registered(home, "vm-00000005").end()
    ended_owner(home, "vm-00000006")
    ended_owner(home, "vm-00000007")
    dead = subprocess.Popen(["true"])
    dead.wait()
    os.rename(home / "vms" / "vm-00000007", home / "vms" / f".vm-00000007.{dead.pid}")
    removed, kept = remove.prune(str(home))
    assert (sorted(removed), kept) == (["vm-00000005", "vm-00000006"], [])
    assert os.listdir(home / "vms") == [living.id]
    living.end()


def test_prune_keeps_changes_that_nobody_has_applied(home: Path) -> None:
    registration = registered(home, "vm-00000008")
    upper = home / "vms" / registration.id / "overlay" / "upper"
    upper.mkdir(parents=True)
    (upper / "work.txt").write_text("hours of it")
    registration.end()
    assert remove.prune(str(home)) == ([], [registration.id])
    assert remove.prune(str(home), changes_too=True) == ([registration.id], [])


def test_what_a_tenant_left_in_its_layer_cannot_stop_a_removal_or_lead_it_astray(home: Path, tmp_path: Path) -> None:
    registration = registered(home, "vm-00000009")
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    locked = home / "vms" / registration.id / "overlay" / "work" / "work"
    locked.mkdir(parents=True)
    (locked / "link").symlink_to(outside)
    deep = locked
    for _ in range(150):
        deep = deep / ("d" * 20)
        deep.mkdir()
    locked.chmod(0)
    registration.end()
    remove.remove(find(str(home), registration.id))
    assert os.listdir(home / "vms") == []
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755


def test_starts_lists_and_prunes_at_the_same_time_do_not_disturb_each_other(home: Path) -> None:
    def life(number: int) -> str:
        registration = registered(home, f"vm-{number:08x}")
        if number % 3 == 0:
            remove.prune(str(home))
        assert find(str(home), registration.id).running
        registration.end()
        return registration.id

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(life, range(1, 200)))) == 199
    remove.prune(str(home))
    assert os.listdir(home / "vms") == []


def test_the_oldest_stopped_ones_give_way(home: Path) -> None:
    for number in range(1, 30):
        registered(home, f"vm-{number:08x}").end()
    remove.trim(str(home), 10)
    assert len(entries(str(home))) == 10


def test_a_sandbox_that_could_not_be_built_leaves_no_entry(home: Path) -> None:
    with pytest.raises(SandboxError):
        Sandbox({"filesystem": {"root": "/no/such/project"}})
    assert entries(str(home)) == []


def test_a_damaged_entry_hides_no_other_and_can_be_pruned(home: Path) -> None:
    """A pipe in a file's place had stopped every `list` and `prune`, a wrong type had ended them."""
    vms = home / "vms"
    with Sandbox() as sandbox:
        for name in ("vm-pipe", "vm-directory", "vm-types", "vm-number", "vm-\x1b[31m"):
            (vms / name).mkdir()
        os.mkfifo(vms / "vm-pipe" / "status")
        (vms / "vm-directory" / "status").mkdir()
        (vms / "vm-directory" / "config.json").mkdir()
        (vms / "vm-types" / "config.json").write_text('{"command": 5, "created_at": "x", "image": [],\n}')
        (vms / "vm-number" / "config.json").write_text('{"command": [1], "created_at": -1e300,\n}')
        (vms / "vm-number" / "pid").write_text(f"²\n{9:0>5000}\n")
        (vms / "vm-types" / "pid").write_text("9" * 200)
        damaged = ["vm-directory", "vm-number", "vm-pipe", "vm-types"]
        shown = {entry.id: entry.plain()["status"] for entry in entries(str(home))}
        assert shown == {sandbox.id: "running", **dict.fromkeys(damaged, "crashed")}
        assert sorted(remove.prune(str(home))[0]) == damaged
        remove.trim(str(home), 0)
        assert get_vm(sandbox.id).running


def test_kill_waits_for_the_answer_not_for_the_end_of_what_comes_before_it(home: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as owner, socket.socket(socket.AF_UNIX) as listener:
        registered(home, "vm-00000001")
        place = home / "vms" / "vm-00000001"
        (place / "pid").write_text(f"{owner.pid}\n{identity(owner.pid)}\n")
        (place / "socket").unlink(missing_ok=True)
        with address(place / "socket") as name:
            listener.bind(name)
        listener.listen()

        def talk() -> None:
            line = listener.accept()[0]
            with line, suppress(OSError):
                while owner.returncode is None:
                    line.sendall(b'{"method":"event","params":{"type":"ask","ask":{"id":1}}}\n')

        with ThreadPoolExecutor() as pool:
            pool.submit(talk)
            killing = pool.submit(remove.kill, get_vm("vm-00000001"), patience=0.2)
            try:
                killing.result(timeout=60)
            finally:
                owner.kill()
                owner.wait()
    assert owner.returncode == -signal.SIGTERM


def test_an_owner_that_answers_with_an_error_is_ended_anyway(home: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as owner, socket.socket(socket.AF_UNIX) as listener:
        registered(home, "vm-00000001")
        place = home / "vms" / "vm-00000001"
        (place / "pid").write_text(f"{owner.pid}\n{identity(owner.pid)}\n")
        (place / "socket").unlink(missing_ok=True)
        with address(place / "socket") as name:
            listener.bind(name)
        listener.listen()

        def refuse() -> None:
            line = listener.accept()[0]
            with line, line.makefile("rwb") as stream:
                asked = json.loads(stream.readline())
                told = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32000, "message": "no"}}
                stream.write(json.dumps(told).encode() + b"\n")

        try:
            with ThreadPoolExecutor() as pool:
                refusing = pool.submit(refuse)
                remove.kill(get_vm("vm-00000001"))
                refusing.result(timeout=60)
            assert owner.wait(timeout=60) == -signal.SIGTERM
        finally:
            owner.kill()


class Immortal:
    """A process that no signal ends, as one in an uninterruptible sleep."""

    def __init__(self, pid: int) -> None:
        pass

    def send_signal(self, number: int) -> None:
        pass

    def wait(self, timeout: float) -> bool:
        return False

    def close(self) -> None:
        pass


def test_what_could_not_be_ended_is_not_called_stopped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.host_process.ProcessHandle", Immortal)
    registered(home, "vm-00000001")
    with pytest.raises(SandboxError, match="could not be ended"):
        remove.kill(get_vm("vm-00000001"), patience=0.01)
    assert get_vm("vm-00000001").running


def test_one_that_is_removed_meanwhile_counts_as_ended(home: Path) -> None:
    registered(home, "vm-00000001")
    entry = get_vm("vm-00000001")
    (home / "vms" / "vm-00000001" / "pid").unlink()
    remove.kill(entry, patience=0.01)


def test_kill_all_continues_after_one_that_cannot_be_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sandbox.cli.main import main

    for number in (1, 2, 3):
        registered(home, f"vm-0000000{number}")

    def kill(entry: Entry) -> None:
        if entry.id != "vm-00000002":
            raise SandboxError("{id} could not be ended", id=entry.id)

    monkeypatch.setattr(remove, "kill", kill)
    assert main(["kill", "--all"]) == 125
    printed = capsys.readouterr()
    assert printed.out == "vm-00000002\n"
    assert "vm-00000001 could not" in printed.err and "vm-00000003 could not" in printed.err
