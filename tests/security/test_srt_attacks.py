"""What a tenant tries behind `srt`, where the whole machine can be read: nothing more than reading comes of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.policy.protected import RESERVED

DATAGRAM = """
import socket, sys
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
a.sendto(b"evil", sys.argv[1])
"""
CONNECT = """
import socket, sys
sock = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[2]))
sock.connect("\\0" + sys.argv[1][1:] if sys.argv[1][0] == "@" else sys.argv[1])
"""
PAIR = """
import socket, sys
a, b = socket.socketpair()
b.close()
a.connect(sys.argv[1])
"""
URING = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); assert libc.syscall(425, 8, 0) < 0"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a project in it, which srt is run in."""
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / ".sandbox"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def srt(*words: str, settings: object = None, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    Path(os.environ["HOME"], ".srt-settings.json").write_text(json.dumps(settings or {}))
    argv = [*before, sys.executable, "-m", "sandbox.cli.srt", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def writing(*paths: str, **more: Any) -> dict[str, Any]:
    return {"filesystem": {"denyRead": [], "allowWrite": list(paths), "denyWrite": [], **more}}


@pytest.fixture
def listener(place: Path) -> Iterator[Path]:
    """A socket of a program of the host, as an agent's or docker's."""
    path = place / "agent.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        yield path


def test_no_socket_of_the_host_is_reached(place: Path, listener: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(listener))
    assert srt("sh", "-c", 'test -S "$SSH_AUTH_SOCK"').returncode == 0  # in sight, and of no use
    for script, words in (
        (CONNECT, [str(listener), "SOCK_STREAM"]),
        (CONNECT, [str(listener), "SOCK_SEQPACKET"]),
        (CONNECT, [str(listener), "SOCK_DGRAM"]),
        (PAIR, [str(listener)]),
        (DATAGRAM, [str(listener)]),
    ):
        done = srt("python3", "-c", script, *words)
        assert done.returncode == 1 and ("Operation not permitted" in done.stderr or "already connected" in done.stderr)
    assert srt("python3", "-c", URING).returncode == 0


def test_no_datagram_reaches_a_socket_of_the_host(place: Path) -> None:
    path = place / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.setblocking(False)
        assert srt("python3", "-c", DATAGRAM, str(path)).returncode == 1
        with pytest.raises(BlockingIOError):
            sock.recv(10)
        assert (
            srt("python3", "-c", DATAGRAM, str(path), settings={"network": {"allowAllUnixSockets": True}}).returncode
            == 0
        )
        assert sock.recv(10) == b"evil"  # the same way, once it is open


def test_abstract_sockets_of_the_host_are_never_reached(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"\0{place.name}")
        sock.listen()
        every = {"network": {"allowAllUnixSockets": True}}
        done = srt("python3", "-c", CONNECT, f"@{place.name}", "SOCK_STREAM", settings=every)
        assert done.returncode == 1 and "Connection refused" in done.stderr


def test_the_sandboxs_own_places_are_out_of_reach_whatever_is_allowed(place: Path) -> None:
    with Sandbox() as other:
        control = place / ".sandbox" / "vms" / other.id / "socket"
        keys = list((place / ".sandbox" / "authority").glob("*/key.pem"))
        keys = keys or list(Path(os.environ.get("SANDBOX_AUTHORITY", "/nowhere")).glob("*/key.pem"))
        records = list((place / ".sandbox" / "audit").iterdir())
        assert control.exists() and keys and records
        settings = writing("~", "/tmp") | {"network": {"allowAllUnixSockets": True}}
        for asked in ({}, settings, {**writing(), "network": {"allowUnixSockets": [str(control)]}}):
            done = srt("python3", "-c", CONNECT, str(control), "SOCK_STREAM", settings=asked)
            assert done.returncode == 1
            for path in (*keys, *records, control):
                for spelled in (path, f"/proc/self/root{path}", f"/proc/self/cwd/{os.path.relpath(path)}"):
                    assert srt("ls", str(spelled), settings=asked).returncode != 0
        done = srt("sh", "-c", "mv ~/.sandbox ~/x; rm -rf ~/.sandbox; touch ~/.sandbox/x", settings=settings)
        assert control.exists() and not (place / "x").exists()


def test_an_authority_that_is_made_later_is_not_in_sight(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = place / "later" / "authority"
    monkeypatch.setenv("SANDBOX_AUTHORITY", str(later))
    done = srt("sh", "-c", f"ls {later}/*; ls {later}")
    assert done.stdout == "" and list(later.glob("*/key.pem"))


def test_settings_of_srt_cannot_be_rewritten_for_the_next_run(place: Path) -> None:
    command = 'echo "{\\"network\\": {\\"allowedDomains\\": [\\"evil.test\\"]}}"'
    srt("sh", "-c", f"{command} > ~/.srt-settings.json; mv ~/.srt-settings.json ~/x", settings=writing("~"))
    assert json.loads((place / ".srt-settings.json").read_text()) == writing("~")


def test_nothing_about_a_file_that_is_only_read_can_be_changed(place: Path) -> None:
    kept = place / "kept"
    kept.write_text("old")
    os.mkfifo(place / "pipe")
    before = kept.stat()
    for script in (
        f"echo new > {kept}",
        f"chmod 777 {kept}",
        f"touch -d yesterday {kept}",
        f"ln {kept} link",
        f"mv -T {kept} ./kept && rm -f {kept}",
        f"rm {kept}",
        f"python3 -c 'import os; os.truncate(\"{kept}\", 0)'",
        f'python3 -c \'import os; os.setxattr("{kept}", "user.x", b"y")\'',
        f"exec 3< {kept}; echo new > /proc/self/fd/3",
        f"echo new > /proc/self/root{kept}",
        f"timeout 5 sh -c 'echo evil > {place}/pipe'",
        "mount -o remount,rw /",
        "umount /home",
        "unshare -Ur true",
        "unshare -m true",
        "nsenter -t 1 -m true",
    ):
        assert srt("sh", "-c", script, settings=writing(".")).returncode != 0, script
    after = kept.stat()
    assert kept.read_text() == "old" and (before.st_mode, before.st_mtime) == (after.st_mode, after.st_mtime)


def test_other_processes_are_not_in_sight_by_any_way(place: Path) -> None:
    done = srt("sh", "-c", f"cat /proc/{os.getpid()}/environ; ls /proc/*/root/{place}/kept; ls -d /proc/[0-9]* | wc -l")
    assert int(done.stdout.split()[-1]) < 10 and f"/proc/{os.getpid()}/environ" in done.stderr


def test_a_second_proc_shows_no_process_of_the_host(place: Path) -> None:
    (place / "proc").mkdir()
    words = f'mount --bind /proc {place}/proc && exec "$@"'
    before = ("unshare", *(() if os.geteuid() == 0 else ("-Ur",)), "-m", "sh", "-c", words, "sh")
    if subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace can be made here")
    script = f"ls /etc/os-release; ls {place}/proc; cat {place}/proc/{os.getpid()}/environ"
    done = srt("sh", "-c", script, before=before)
    assert done.stdout == "/etc/os-release\n" and "Permission denied" in done.stderr


def test_devices_and_set_uid_programs_of_the_host_are_of_no_use(place: Path) -> None:
    shutil.copy(shutil.which("id") or "/usr/bin/id", place / "id")
    (place / "id").chmod(0o4755)
    inside = srt("id", "-u").stdout
    assert srt(f"{place}/id", "-u").stdout == inside
    if os.geteuid() == 0:
        os.mknod(place / "zero", 0o020666, os.makedev(1, 5))
        assert srt("head", "-c1", str(place / "zero")).returncode != 0


def test_a_denied_path_stays_denied_by_every_name(place: Path) -> None:
    (place / "secrets").mkdir()
    (place / "secrets" / "key").write_text("the secret")
    (place / "link").symlink_to("secrets")
    settings = {"filesystem": {"denyRead": ["~/link"], "allowWrite": ["."], "denyWrite": []}}
    names = ["link/key", "secrets/key", "project/../secrets/key"]
    script = "; ".join(f"cat {root}{place}/{name}" for name in names for root in ("", "/proc/self/root"))
    done = srt("sh", "-c", f"ln -s {place}/secrets here; cat here/key; {script}", settings=settings)
    assert "the secret" not in done.stdout
    # What a tenant left behind opens nothing in the next run.
    settings["filesystem"]["allowRead"] = ["here"]
    assert "the secret" not in srt("cat", "here/key", settings=settings).stdout


def test_a_masked_variable_is_nowhere_inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPM_TOKEN", "npm_the-real-value")
    settings = {
        "network": {"allowedDomains": ["registry.test"], "tlsTerminate": {}},
        "credentials": {"envVars": [{"name": "NPM_TOKEN", "mode": "mask"}]},
    }
    done = srt("sh", "-c", "env; cat /proc/*/environ; grep -rs real-value ~ /dev/shm /tmp/claude", settings=settings)
    assert "NPM_TOKEN=" in done.stdout and "the-real-value" not in done.stdout


def test_a_directory_that_another_user_owns_is_not_srts_for_temporary_files(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sandbox.layout import whole_host

    planted = place / "planted"
    planted.symlink_to(place)
    monkeypatch.setattr(whole_host, "TMPDIR", str(planted))
    assert not whole_host._own_temporary()


def test_the_usual_place_is_out_of_reach_also_where_another_one_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sandbox() as other:
        assert (place / ".sandbox" / "vms" / other.id).exists()
        monkeypatch.setenv("SANDBOX_HOME", str(place / "elsewhere"))
        assert srt("sh", "-c", f"ls {place}/.sandbox/vms {place}/elsewhere/vms").stdout == ""


def test_it_starts_where_its_own_directory_is_a_link(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDBOX_AUTHORITY", raising=False)
    (place / "real").mkdir()
    (place / ".sandbox").symlink_to(place / "real")
    done = srt("sh", "-c", f"echo ran; ls {place}/real {place}/.sandbox/")
    assert done.stdout == "ran\n"


WANTED = "settings.json settings.local.json commands/x agents/x skills/x hooks/x plugins/x"


@pytest.mark.parametrize("there", [False, True])
def test_claudes_own_directory_in_the_home_is_written_but_for_what_is_run(place: Path, there: bool) -> None:
    top = place / ".claude"
    top.mkdir()
    for name in WANTED.split() if there else ():
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text("mine")
    script = f"cd ~/.claude; for f in {WANTED} history; do mkdir -p $(dirname $f); echo evil > $f; done"
    srt("sh", "-c", script, settings=writing("~/.claude"))
    after = {str(one.relative_to(top)): one.read_text() for one in top.rglob("*") if one.is_file()}
    assert after == {**dict.fromkeys(WANTED.split() if there else (), "mine"), "history": "evil\n"}


@pytest.mark.parametrize("named", [".git/hooks", ".vscode", ".git/config", "~/.claude/commands", ".mcp.json"])
def test_naming_what_the_host_runs_does_not_open_it(place: Path, named: str) -> None:
    path = Path(named).expanduser() if named[0] == "~" else place / "project" / named
    is_file = path.name in ("config", ".mcp.json")
    (path.parent if is_file else path).mkdir(parents=True, exist_ok=True)
    if is_file:
        path.write_text("mine")
    srt("sh", "-c", f"echo evil > {path if is_file else path / 'x'}", settings=writing(named))
    assert path.read_text() == "mine" if is_file else list(path.iterdir()) == []


def test_what_the_home_lacks_is_not_made_there_by_a_tenant_that_may_write_it(place: Path) -> None:
    names = ".bashrc .profile .zshrc .zshenv .srt-settings.json .claude/settings.json .vscode/tasks.json"
    settings = place / "elsewhere.json"
    settings.write_text(json.dumps(writing("~")))
    script = f"cd ~; for f in {names} plain; do echo evil > $f; done; echo evil > ~/project/.mcp.json"
    argv = [sys.executable, "-m", "sandbox.cli.srt", "-s", str(settings), "sh", "-c", script]
    subprocess.run(argv, capture_output=True, timeout=60)
    assert [name for name in names.split() if (place / name).exists()] == []
    assert (place / "plain").read_text() == "evil\n" and not (place / "project/.mcp.json").exists()


def test_the_name_that_another_sandbox_holds_is_not_a_settings_file(place: Path) -> None:
    held = place / ".srt-settings.json"
    held.touch()
    held.chmod(RESERVED)
    argv = [sys.executable, "-m", "sandbox.cli.srt", "sh", "-c", "echo ran; touch ~/x"]
    assert subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout == "ran\n"
    assert not (place / "x").exists()


def test_two_sandboxes_hold_what_the_home_lacks_until_the_last_one_ends(place: Path) -> None:
    (place / "other").mkdir()
    config = {"filesystem": {"show_host": True, "read_only": True, "allow_write": ["~"], "blocked_patterns": []}}
    with Sandbox({**config, "filesystem": {**config["filesystem"], "root": str(place / "project")}}) as second:
        with Sandbox({**config, "filesystem": {**config["filesystem"], "root": str(place / "other")}}):
            pass
        assert second.exec("echo evil > ~/.zshrc").exit_code != 0
        assert (place / ".zshrc").read_text() == ""
    assert not (place / ".zshrc").exists()


def test_a_denied_path_that_lacks_directories_is_not_made_by_moving_those_above(place: Path) -> None:
    (place / "project" / "a").mkdir()
    done = srt("sh", "-c", "mv a b; mkdir -p a/c; echo evil > a/c/d; ls", settings=writing(".", denyWrite=["a/c/d"]))
    assert done.stdout == "a\n" and not list((place / "project/a").iterdir())


def test_an_ordinary_run_reports_nothing_at_the_end(place: Path) -> None:
    subprocess.run(["git", "init", "-q", "."], check=True)
    for settings in (writing("."), writing("~")):
        done = srt("sh", "-c", "mkdir -p sub; echo x > sub/x; mkdir -p .claude/own; git status -s", settings=settings)
        assert (done.stdout, done.stderr) == ("?? sub/\n", "")
    (place / ".claude").mkdir()
    assert srt("sh", "-c", "echo x > ~/.claude/history", settings=writing("~/.claude")).stderr == ""


def test_what_appears_below_the_top_is_reported_at_the_end(place: Path) -> None:
    done = srt("sh", "-c", "mkdir sub; echo evil > sub/.mcp.json", settings=writing("."))
    assert f"{place}/project/sub/.mcp.json was created or changed while the sandbox ran" in done.stderr
