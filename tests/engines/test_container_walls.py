"""A tenant in a container has no way out, by either engine, and nothing is left when the sandbox ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import sandbox as sandbox_package
from sandbox import LimitUnavailable, Sandbox
from sandbox.engines.container.cli import Cli
from sandbox.engines.container.info import ask
from sandbox.engines.container.leftovers import labels, listed, sweep
from tests.engines.container_engines import Docker
from tests.images import making
from tests.network.room import Origin

pytestmark = pytest.mark.containers

EAT = "x = bytearray()\nwhile True: x += bytes(2**20); x[-1] = 1"
FORKS = """
import os, signal
made = 0
try:
    while made < 100:
        if os.fork() == 0:
            signal.pause()
        made += 1
except OSError:
    print(made)
"""
OWNER = """
import sys
from sandbox import Sandbox
sandbox = Sandbox({"engine": sys.argv[1], "filesystem": {"root": sys.argv[2]}})
process = sandbox._spawn("sleep 1000 & setsid sh -c 'echo up; exec sleep 1000'", stdio=(None, None, int(sys.argv[3])))
assert process.read() == b"up\\n"
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=[pytest.param("docker", marks=pytest.mark.root), "podman"])
def engine(request: pytest.FixtureRequest) -> str:
    request.getfixturevalue(request.param)
    return str(request.param)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".env").write_text("TOKEN=hidden")
    return tmp_path / "project"


def make(engine: str, project: Path, **more: object) -> Sandbox:
    return Sandbox({"engine": engine, "filesystem": {"root": str(project)}, **more})


@pytest.fixture
def sandbox(engine: str, project: Path) -> Iterator[Sandbox]:
    with make(engine, project) as made:
        yield made


def test_a_tenant_has_no_capability_and_cannot_get_one(sandbox: Sandbox) -> None:
    said = sandbox.exec(["cat", "/proc/self/status"]).stdout
    found = dict(line.split(":\t", 1) for line in said.splitlines() if ":\t" in line)
    assert {found[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    for way in ("unshare -Ur true", "mount -t tmpfs none /tmp", "chroot / true", "nsenter -t 1 -m true"):
        assert not sandbox.exec(way).ok, way


def test_nothing_of_the_engine_is_in_sight(sandbox: Sandbox) -> None:
    named = sandbox.exec("cat /proc/mounts /proc/1/cmdline; ls -a / /run").stdout.replace("\0", " ")
    for word in (".host", ".sandbox", "docker", "podman", "containerenv", "overlay-containers", "control"):
        assert word not in named, word
    assert sandbox.exec("find / -xdev -type s 2>/dev/null").stdout == ""
    for hidden in ("/proc/1/environ", "/proc/1/root/", "/proc/1/fd/", "/proc/1/mem"):
        assert not sandbox.exec(["ls", hidden]).ok or not sandbox.exec(["head", "-c1", hidden]).ok


@pytest.mark.root
def test_the_daemons_socket_in_a_directory_that_is_shown_cannot_be_used(docker: Docker, project: Path) -> None:
    socket = f"{docker.directory}/socket"
    with Sandbox({"engine": "docker", "filesystem": {"root": str(project), "allow_read": [socket]}}) as sandbox:
        said = sandbox.exec(["curl", "-sS", "--unix-socket", socket, "http://localhost/info"])
        assert (said.ok, said.stdout) == (False, "")


def test_the_gate_is_the_only_way_to_the_network(engine: str, project: Path, origin: Origin) -> None:
    network = {"allowed_hosts": ["good.test", "127.0.0.1"]}
    config = {"engine": engine, "filesystem": {"root": str(project)}, "network": network}
    with Sandbox(config, resolve=lambda host, port: ["127.0.0.1"]) as sandbox:
        assert sandbox.exec("cut -d: -f1 /proc/net/dev | tail -n +3").stdout.split() == ["lo"]
        assert sandbox.exec(["curl", "-sS", f"http://good.test:{origin.port}/"]).stdout.startswith(
            "GET / for good.test"
        )
        assert "is not allowed" in sandbox.exec(["curl", "-sS", f"http://other.test:{origin.port}/"]).stdout
        # The loopback inside is the tenants' own, whatever listens outside.
        assert not sandbox.exec(["curl", "-sS", f"http://127.0.0.1:{origin.port}/"]).ok


def test_a_blocked_file_is_blocked_also_one_that_the_host_makes_later(sandbox: Sandbox, project: Path) -> None:
    assert (sandbox.exec(["cat", ".env"]).ok, (project / ".env").read_text()) == (False, "TOKEN=hidden")
    assert sandbox._guard.wait_until_watching(60)
    (project / "late.pem").write_text("LATE")
    # The cover comes a moment after the file, and stays.
    covered = "while cat late.pem >/dev/null 2>&1; do :; done; echo covered"
    assert sandbox.exec(covered, timeout=20).stdout == "covered\n"


def test_a_tenant_writes_nowhere_but_in_the_project_and_its_own_places(sandbox: Sandbox, project: Path) -> None:
    assert sandbox.exec("for p in / /usr /etc /dev /proc /var; do touch $p/x && echo $p; done").stdout == ""
    assert sandbox.exec("touch x /tmp/x ~/x").ok
    assert (project / "x").stat().st_uid == os.geteuid()


MEMBER = """
import os, sys
from sandbox import Sandbox
from sandbox.errors import ConfigError
with Sandbox({"engine": "docker", "filesystem": {"root": sys.argv[1]}}) as sandbox:
    print(sandbox.exec("id -u; touch made ~/x /tmp/x; cat .env; grep CapEff /proc/self/status").stdout)
for asked in ({"filesystem": {"root": sys.argv[1], "ask": True}}, {"vfs": {"mounts": {"/x": {"type": "memory"}}}}):
    try:
        Sandbox({"engine": "docker", **asked})
    except ConfigError as problem:
        print(problem)
"""


@pytest.mark.root
def test_a_member_of_dockers_group_gets_files_of_his_own_and_nothing_of_roots(docker: Docker, tmp_path: Path) -> None:
    os.chmod(f"{docker.directory}/socket", 0o666)
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        shutil.copytree(Path(sandbox_package.__file__).parent, home / "lib" / "sandbox")
        (home / "project").mkdir()
        (home / "project" / ".env").write_text("TOKEN=hidden")
        words = [
            "setpriv",
            "--reuid=4321",
            "--regid=4321",
            "--clear-groups",
            "--inh-caps=-all",
            "/usr/bin/python3",
            "-c",
        ]
        subprocess.run(["chown", "-R", "4321:4321", str(home)], check=True)
        variables = {"DOCKER_HOST": docker.host, "HOME": str(home), "PYTHONPATH": str(home / "lib"), "PATH": os.defpath}
        done = subprocess.run(
            [*words, MEMBER, str(home / "project")],
            env=variables,
            capture_output=True,
            text=True,
            cwd=home,
            check=False,
        )
        assert done.stdout.split("\n")[:2] == ["4321", "CapEff:\t0000000000000000"], done.stderr
        assert done.stdout.count("the docker engine does not support this") == 2
        assert (home / "project" / "made").stat().st_uid == 4321
    finally:
        os.chmod(f"{docker.directory}/socket", 0o660)
        shutil.rmtree(home)


def test_an_overlay_keeps_the_project_as_it_is(engine: str, project: Path) -> None:
    (project / "kept").write_text("old")
    with Sandbox({"engine": engine, "filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        assert sandbox.exec("echo new > kept; cat kept").stdout == "new\n"
        assert [one.path for one in sandbox.changes()] == ["kept"]
    assert (project / "kept").read_text() == "old"


def test_a_port_of_a_tenant_is_published(engine: str, project: Path) -> None:
    serve = "python3 -c \"import socket; s = socket.create_server(('127.0.0.1', 8000)); print('up', flush=True); "
    serve += "c, _ = s.accept(); c.sendall(b'hello'); c.close()\""
    with make(engine, project, network={"publish": ["0:8000"]}) as sandbox, sandbox.spawn(serve) as process:
        assert process.read().startswith(b"up")
        with socket.create_connection(("127.0.0.1", sandbox.ports[0]["port"])) as connection:
            assert connection.recv(100) == b"hello"


def test_a_limit_is_held_or_refused_and_never_ignored(engine: str, project: Path) -> None:
    with make(engine, project, limits={"pids": 30}) as sandbox:
        assert 0 < int(sandbox.exec(["/usr/bin/python3", "-c", FORKS]).stdout) <= 30
    controllers = ask(Cli(engine)).controllers
    assert os.geteuid() != 0 or controllers == {"memory", "cpu", "pids"}
    for name, value, controller in (("memory", "64m", "memory"), ("cpus", 0.5, "cpu")):
        if controller not in controllers:
            with pytest.raises(LimitUnavailable, match=f"{engine} cannot hold limits.{name} here"):
                make(engine, project, limits={name: value})
            assert containers(engine) == []
    if "memory" in controllers:
        with make(engine, project, limits={"memory": "64m", "cpus": 0.5}) as sandbox:
            assert sandbox.exec(["/usr/bin/python3", "-c", EAT]).out_of_memory
            assert 0 < (sandbox.stats()["memory_peak_bytes"] or 0) <= 64 * 2**20


def containers(engine: str) -> list[str]:
    return [one.name for one in listed(Cli(engine))]


def test_when_the_owner_is_killed_nothing_is_left(engine: str, project: Path) -> None:
    read, write = os.pipe()
    command = [sys.executable, "-c", OWNER, engine, str(project), str(write)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[write]) as owner:
        os.close(write)
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        assert len(containers(engine)) == 1
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert os.read(read, 1) == b""  # every tenant has ended
    os.close(read)
    sweep()
    assert containers(engine) == []


def test_containers_have_the_chosen_prefix_and_are_found_by_it(engine: str, project: Path) -> None:
    with make(engine, project, container_prefix="mine") as first, make(engine, project) as second:
        assert sorted(containers(engine)) == sorted([f"mine-{first.id}", f"sandbox-{second.id}"])
        assert [one.id for one in listed(Cli(engine), "mine-")] == [first.id]
        assert first.exec(["true"]).ok
    assert containers(engine) == []


def test_what_a_dead_owner_left_is_removed_and_nothing_else(engine: str, sandbox: Sandbox) -> None:
    cli = Cli(engine)
    dead = {**labels("vm-dead"), "sandbox.owner": "999999999 1 x"}
    elsewhere = {**dead, "sandbox.home": "/another/home"}
    image = "localhost/sandbox-empty:1"
    for name, marks in (("mine-vm-dead", dead), ("sandbox-vm-elsewhere", elsewhere), ("somebodys", {})):
        words = (word for pair in marks.items() for word in ("--label", "=".join(pair)))
        cli.run("create", "--name", name, *words, "--entrypoint", "/x", image)
    try:
        assert sweep() == ["mine-vm-dead"]  # by its labels, whatever its name
        assert sorted(containers(engine)) == sorted([f"sandbox-{sandbox.id}", "sandbox-vm-elsewhere"])
        assert [one.name for one in listed(cli, "sandbox-vm-else")] == ["sandbox-vm-elsewhere"]
        assert "somebodys" in cli.run("ps", "--all", "--format", "{{.Names}}").split()
        assert sandbox.exec(["true"]).ok
    finally:
        cli.run("rm", "--force", "sandbox-vm-elsewhere", "somebodys")


def test_an_image_that_the_engine_has_is_at_the_root(
    engine: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_CACHE_DIR", str(tmp_path / "cache"))
    mark = making.tar([making.file("marked", b"by the image"), making.link("etc", "/.host/etc")])
    archive = making.docker_archive(tmp_path / "image.tar", [making.system(), mark], {"Env": ["OWN=value"]})
    cli = Cli(engine)
    loaded = cli.run("load", "--input", str(archive)).strip().rpartition(" ")[2]
    cli.run("tag", loaded, "localhost/marked:1")
    try:
        with make(engine, project, image="localhost/marked:1") as sandbox:
            assert (
                sandbox.exec("cat /marked; echo; echo $OWN; pwd; cat .env").stdout
                == f"by the image\nvalue\n{project}\n"
            )
    finally:
        cli.run("rmi", "--force", "localhost/marked:1")


def test_after_the_end_the_engine_knows_nothing_of_it(engine: str, project: Path) -> None:
    with make(engine, project) as sandbox:
        assert containers(engine) == [f"sandbox-{sandbox.id}"]
    assert containers(engine) == []
    assert not os.path.exists(f"{os.environ['SANDBOX_HOME']}/containers/{sandbox.id}")
