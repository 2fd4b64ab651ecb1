"""A virtual machine is an engine like the others."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from tests.engines.conformance import Conformance

# The quick half, which `make test` runs. `vm`: what takes long where machines are emulated; `make vm` runs that too.
pytestmark = pytest.mark.usefixtures("machines")


class TestQemu(Conformance):
    engine = "qemu"

    @pytest.mark.vm
    def test_a_binary_input_of_100_megabytes_arrives_whole(self, sandbox: Sandbox) -> None:
        super().test_a_binary_input_of_100_megabytes_arrives_whole(sandbox)

    @pytest.mark.vm
    def test_many_sandboxes_live_in_one_process(self, tmp_path: Path) -> None:
        super().test_many_sandboxes_live_in_one_process(tmp_path)

    @pytest.mark.vm
    def test_time_and_memory_are_measured(self, sandbox: Sandbox) -> None:
        super().test_time_and_memory_are_measured(sandbox)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    (tmp_path / ".env").write_text("TOKEN=hidden")
    with Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path)}}) as made:
        yield made


def test_a_tenant_has_a_kernel_of_its_own(sandbox: Sandbox) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert sandbox.exec(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip() not in ("", boot)


def test_two_machines_have_nothing_in_common_that_should_be_ones_own(sandbox: Sandbox, tmp_path: Path) -> None:
    own = "cat /proc/sys/kernel/random/boot_id; od -An -tx1 -N16 /dev/urandom; cat /etc/machine-id"
    with Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path)}}) as other:
        one, two = (each.exec(own).stdout.splitlines() for each in (sandbox, other))
    assert len(one) == len(two) >= 2 and not set(one) & set(two)
    assert str(uuid.UUID(one[0])) == one[0]


def test_a_home_in_a_scratch_place_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path("/tmp") / f"home-{os.urandom(8).hex()}" / "of"
    (tmp_path / "project").mkdir()
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    try:
        with Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path / "project")}}) as sandbox:
            sandbox.mkdir(str(home / "settings"), 0o700)
            sandbox.write_file(str(home / "settings" / "x"), b"kept", 0o600)
            assert sandbox.exec("cat ~/settings/x && echo new > ~/y && cat ~/y").stdout == "keptnew\n"
        assert list(home.iterdir()) == []
    finally:
        shutil.rmtree(home.parent)


def test_a_blocked_file_is_blocked_in_the_machine_too(sandbox: Sandbox) -> None:
    result = sandbox.exec(["cat", ".env"])
    assert (result.exit_code, result.stdout) == (1, "")


def test_an_attempt_to_read_a_blocked_file_reaches_the_rooms_tripwire(sandbox: Sandbox) -> None:
    if not sandbox._running.tripwires:
        pytest.skip("no FUSE for this user")
    touched: list[str] = []
    arrived = threading.Event()

    def hear(event: Any) -> None:
        if event["type"] == "file":
            touched.append(str(event["file"]))
            arrived.set()

    sandbox.on_event(hear)
    assert sandbox.exec(["cat", ".env"]).stderr == "cat: .env: Permission denied\n"
    assert arrived.wait(20)
    assert ".env" in touched[0]


def test_no_file_becomes_setuid(sandbox: Sandbox, tmp_path: Path) -> None:
    ways = (
        "touch a; chmod 4755 a",
        "touch b; chmod 2755 b",
        "/usr/bin/python3 -c 'import os; os.open(\"c\", 65, 0o4755)'",
    )
    assert [sandbox.exec(way).exit_code for way in ways] == [1, 1, 1]
    assert not [one.name for one in tmp_path.iterdir() if one.stat().st_mode & 0o6000]


def test_every_connection_ends_at_the_gate(sandbox: Sandbox) -> None:
    assert "is not allowed" in sandbox.exec("curl -sS http://example.org/").stdout


@pytest.mark.parametrize("family, address", [("AF_INET", "192.0.2.1"), ("AF_INET6", "2001:db8::1")])
def test_a_datagram_is_refused_at_once_over_ipv4_and_ipv6(sandbox: Sandbox, family: str, address: str) -> None:
    code = f"""
import socket
s = socket.socket(socket.{family}, socket.SOCK_DGRAM)
s.connect(({address!r}, 443))
try:
    s.send(b"hello"), s.recv(1)
except ConnectionRefusedError:
    print("refused")"""
    assert sandbox.exec(["/usr/bin/python3", "-c", code], timeout=300).stdout == "refused\n"


LIBRARIES = Path("/etc/ld.so.cache")


@pytest.mark.skipif(not LIBRARIES.exists(), reason="no list of libraries")
def test_the_list_of_libraries_is_the_hosts_and_can_be_hidden(sandbox: Sandbox, tmp_path: Path) -> None:
    assert sandbox.read_file(str(LIBRARIES)) == LIBRARIES.read_bytes()
    hidden = {"root": str(tmp_path), "deny_read": [str(LIBRARIES)]}
    with Sandbox({"engine": "qemu", "filesystem": hidden}) as other:
        assert other.exec(["/usr/bin/wc", "-c", str(LIBRARIES)]).stdout.split()[:1] in ([], ["0"])


def test_neither_the_template_nor_the_rooms_processes_can_be_opened(sandbox: Sandbox) -> None:
    script = "for f in /.machine/ram /.machine/kernel; do cat $f && echo read; echo x >> $f && echo changed; done"
    assert sandbox.exec(f"({script}) 2>/dev/null").stdout == ""
    assert sandbox.exec("cat /proc/[0-9]*/comm").stdout.count("qemu") == 0


def test_the_hosts_edits_are_seen_though_the_machine_remembers_names_and_contents(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "edited").write_text("before")
    assert sandbox.exec("cat edited; ls; test -e new").stdout.startswith("before")
    (tmp_path / "edited").write_text("after it")
    (tmp_path / "new").write_text("here")
    script = (
        "for i in $(seq 100); do grep -q after edited && test -e new && ls | grep -qx new && echo seen && exit; done"
    )
    assert sandbox.exec(script).stdout == "seen\n"


def test_a_small_file_that_comes_with_its_opening_is_the_one_that_was_written_last(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    for number in range(5):
        (tmp_path / "small").write_text(f"host {number}")
        script = f"for i in $(seq 100); do grep -qx 'host {number}' small && echo seen && break; done"
        own = f"echo inside {number} > small; cat small; cat small & echo later {number} > small; wait; cat small"
        said = sandbox.exec(f"{script}; {own}").stdout.splitlines()
        assert said[:2] == ["seen", f"inside {number}"] and said[-1] == f"later {number}"


def test_names_that_were_asked_for_ahead_are_those_of_now(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(60):
        (tmp_path / "many" / str(number)).write_text("")
    assert sandbox.exec("for i in $(seq 0 59); do test -e many/$i || echo lost $i; done").stdout == ""
    (tmp_path / "many" / "5").unlink()
    assert sandbox.exec("for i in $(seq 200); do test -e many/5 || { echo gone; exit; }; done").stdout == "gone\n"


def test_a_lock_of_the_hosts_holds_in_the_machine(sandbox: Sandbox, tmp_path: Path) -> None:
    import fcntl

    with open(tmp_path / "lock", "w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert sandbox.exec("flock -n lock true").exit_code == 1
    assert sandbox.exec("flock -n lock true").exit_code == 0


def test_attributes_modes_and_large_files_arrive_on_the_host(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(os.urandom(3_000_001))
    script = "import os; open('x', 'w').close(); os.setxattr('x', 'user.a', b'b'); os.chmod('x', 0o750)"
    result = sandbox.exec(["/usr/bin/python3", "-c", script])
    assert result.exit_code == 0, result.stderr
    assert sandbox.exec("cp given taken").exit_code == 0
    assert os.getxattr(tmp_path / "x", "user.a") == b"b"
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "taken").read_bytes() == (tmp_path / "given").read_bytes()


@pytest.mark.vm
def test_limits_hold_for_tenants_and_a_lent_port_is_reached(tmp_path: Path) -> None:
    import socket
    from threading import Thread

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def greet() -> None:
            with server.accept()[0] as connection:
                connection.sendall(b"the host's")

        Thread(target=greet, daemon=True).start()
        limits = {"pids": 30, "open_files": 50, "file_size": "1m"}
        config = {"filesystem": {"root": str(tmp_path)}, "network": {"localhost_ports": [port]}, "limits": limits}
        with Sandbox({"engine": "microvm", **config}) as made:
            ask = f"import socket; print(socket.create_connection(('127.0.0.1', {port}), 20).recv(99).decode())"
            assert made.exec(["/usr/bin/python3", "-c", ask]).stdout == "the host's\n"
            assert made.exec(["bash", "-c", "ulimit -n; ulimit -u"]).stdout.split() == ["50", "31"]
            assert made.exec("head -c 2000000 /dev/zero > big").exit_code != 0
            assert (tmp_path / "big").stat().st_size <= 2**20


def test_a_directory_shown_twice_is_read_only_where_it_is_shown_so(tmp_path: Path) -> None:
    project, host = tmp_path / "project", tmp_path / "host"
    project.mkdir()
    host.mkdir()
    (host / "f").write_text("old\n")
    mounts = {"/rw": {"type": "real_fs", "host_path": str(host)}, "/ro": {"type": "readonly", "host_path": str(host)}}
    with Sandbox({"engine": "qemu", "filesystem": {"root": str(project)}, "vfs": {"mounts": mounts}}) as made:
        assert made.exec("cat /rw/f /ro/f; echo new > /rw/f; cat /ro/f").stdout == "old\nold\nnew\n"
        for change in ("echo x > /ro/f", "rm /ro/f", "cat /rw/f; touch /ro/g"):
            assert "Read-only" in made.exec(change).stderr
    assert os.listdir(host) == ["f"]


@pytest.mark.vm
def test_out_of_memory_inside_is_reported_as_such(tmp_path: Path) -> None:
    eat = "x = []\nwhile True: x.append(b'x' * (8 << 20))"
    with Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path)}, "limits": {"memory": "256m"}}) as made:
        result = made.exec(["/usr/bin/python3", "-c", eat])
        assert (result.out_of_memory, result.note) == (True, "out of memory: the limit is 256 MiB")
        after = made.exec("exit 3")
        assert (after.exit_code, after.out_of_memory) == (3, False)


def test_root_of_the_machine_mounts_loads_modules_and_changes_its_system_but_not_the_hosts(tmp_path: Path) -> None:
    with Sandbox({"engine": "qemu", "user": "root", "filesystem": {"root": str(tmp_path)}}) as made:
        mounts = "mkdir -p /opt/a && mount -t tmpfs none /opt/a && /usr/sbin/modprobe loop"
        script = f"{mounts} && echo x > /usr/not-the-hosts && echo y > out"
        assert made.exec(script).exit_code == 0
    assert not os.path.exists("/usr/not-the-hosts")
    assert (tmp_path / "out").read_text() == "y\n"


def test_the_clock_is_the_hosts_also_after_the_machine_was_stopped(sandbox: Sandbox) -> None:
    import signal
    import time

    inside = sandbox._running.pid
    children = Path(f"/proc/{inside}/task/{inside}/children").read_text().split()
    (qemu,) = (pid for pid in children if Path(f"/proc/{pid}/comm").read_text().startswith("qemu"))
    os.kill(int(qemu), signal.SIGSTOP)
    time.sleep(1)  # what is tested is time
    os.kill(int(qemu), signal.SIGCONT)
    before = time.time()
    assert float(sandbox.exec("date +%s.%N").stdout) > before - 0.05


def file_server(sandbox: Sandbox) -> int:
    """The process that shares the project with the machine."""
    room = sandbox._running.pid
    for child in Path(f"/proc/{room}/task/{room}/children").read_text().split():
        if b"--share" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
            return int(child)
    raise AssertionError("no file server")


@pytest.mark.vm
def test_more_changes_on_the_host_than_fit_the_queue_are_seen_and_no_mount_is_lost(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/known").write_text("old")
    (tmp_path / "sub/replaced").mkdir()
    with Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path)}}) as sandbox:
        mounts = sandbox.exec(
            "echo mine > /tmp/note; ls sub/replaced; cat sub/known; cat /proc/mounts", check=True
        ).stdout
        server = file_server(sandbox)
        os.kill(server, signal.SIGSTOP)
        try:
            for number in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) + 1):
                os.mkdir(tmp_path / f"sub/{number}")
            (tmp_path / "sub/known").write_text("new")
            (tmp_path / "sub/replaced").rmdir()
            (tmp_path / "sub/replaced").write_text("a file now")
        finally:
            os.kill(server, signal.SIGCONT)
        while sandbox.exec("cat sub/known").stdout == "old":
            pass
        assert sandbox.exec("cat sub/replaced").stdout == "a file now"
        assert "old" + sandbox.exec("cat /proc/mounts").stdout == mounts
        assert (
            sandbox.exec("cat /tmp/note; ls /dev/null /proc/self/comm").stdout == "mine\n/dev/null\n/proc/self/comm\n"
        )


def open_files() -> list[str]:
    """What this process has open, but for spare descriptors of nothing."""
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return [os.readlink(one) for one in links if one.is_symlink() and os.readlink(one) != os.devnull]


@pytest.mark.vm
def test_ten_machines_at_once_work_and_end_without_a_trace(tmp_path: Path) -> None:
    from sandbox.host_process import descendants

    for number in range(10):
        (tmp_path / str(number)).mkdir()
    with Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path / "0")}}) as first:  # what stays is open now
        assert first.exec("true").ok
    before = len(open_files())
    machines = [Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path / str(n))}}) for n in range(10)]
    try:
        for number, one in enumerate(machines):
            one.exec(f"echo {number} > mine", check=True)
        assert len({one.exec("cat /proc/sys/kernel/random/uuid").stdout for one in machines}) == 10
        rooms = [one._running.pid for one in machines]
        processes = [pid for room in rooms if room for pid in (room, *descendants(room))]
        assert len(processes) >= 40  # a guest, two file servers and QEMU each
    finally:
        for one in machines:
            one.close()
    assert [(tmp_path / str(number) / "mine").read_text() for number in range(10)] == [f"{n}\n" for n in range(10)]
    assert not [pid for pid in processes if os.path.exists(f"/proc/{pid}")]
    assert len(open_files()) <= before
