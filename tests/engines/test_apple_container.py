"""Apple's containers, with a stand-in for the command, which exists only on a Mac: docs/limits.md."""

from __future__ import annotations

import json
import os
import select
import signal
import socketserver
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandbox import ConfigError, EngineUnavailable, LimitUnavailable, Sandbox, WallError
from sandbox.config.model import Limits
from sandbox.engines import auto, platform
from sandbox.engines.apple.arguments import run_arguments, shared
from sandbox.engines.apple.engine import setup
from sandbox.engines.container import cli, leftovers
from sandbox.engines.named import named
from sandbox.plan.mount_operations import Cover
from sandbox.plan.plan import ImageRoot, Plan
from tests.engines.conformance import Conformance
from tests.images import making
from tests.network.room import Origin

pytestmark = pytest.mark.usefixtures("apple")
GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.containers
class TestAppleContainer(Conformance):
    engine = "apple-container"


def make(project: Path, **more: object) -> Sandbox:
    filesystem = {"root": str(project), **more.pop("filesystem", {})}  # type: ignore[dict-item]
    return Sandbox({"engine": "apple-container", "filesystem": filesystem, **more})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


@pytest.fixture
def a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    mac = os.uname_result(("Darwin", "mac", "25.0", "Darwin Kernel", os.uname().machine))
    monkeypatch.setattr(os, "uname", lambda: mac)


def containers(state: Path) -> list[str]:
    return [one.name for one in state.glob("container-*.json")]


# -- what the command is told


def full_plan() -> Plan:
    plan = Plan()
    plan.id = "vm-1"
    plan.limits = Limits(memory=2**29, cpus=2.0)
    plan.show("/Users/ann/project", "/Users/ann/project", True)
    plan.show("/Users/ann/project/docs", "/docs", False)
    plan.show("/Users/ann/notes.txt", "/notes.txt", False)
    plan.image = ImageRoot("/Users/ann/.cache/sandbox/images/1/root", 2**20)
    return plan


def test_a_plan_becomes_the_words_we_know() -> None:
    words = run_arguments(full_plan(), shelf="/Users/ann/.sandbox/containers/vm-1", image="i", labels={"a": "b"})
    text = "".join(f"{word}\n" for word in words)
    file = GOLDEN / "apple-container.txt"
    if "UPDATE_GOLDEN" in os.environ:
        file.write_text(text)
    assert text == file.read_text()


def test_the_machine_is_given_no_more_of_the_host_than_the_plan_shows() -> None:
    assert shared(full_plan()) == [
        ("/Users/ann/.cache/sandbox/images/1/root", False),
        ("/Users/ann/notes.txt", False),
        ("/Users/ann/project", True),
    ]


@pytest.mark.parametrize(("limits", "word"), [({"cpus": 1.5}, "cpus"), ({"memory": 2**29 + 1}, "memory")])
def test_a_limit_that_would_be_rounded_is_an_error(limits: dict[str, float], word: str) -> None:
    plan = Plan()
    plan.limits = Limits(**limits)
    with pytest.raises(LimitUnavailable, match=f"limits.{word}"):
        run_arguments(plan, shelf="/s", image="i", labels={})


@pytest.mark.parametrize("path", ["/a:b", "/a\nb", "/"])
def test_a_path_that_the_command_would_misread_is_an_error(path: str) -> None:
    plan = Plan()
    plan.show(path, "/x", False)
    with pytest.raises(EngineUnavailable, match="cannot be named"):
        run_arguments(plan, shelf="/s", image="i", labels={})


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("runtime", {"runtime": "runsc"}),
        ("filesystem.overlay", {"filesystem": {"overlay": True}}),
        ("filesystem.show_host", {"filesystem": {"show_host": True}}),
        ("filesystem.ask", {"filesystem": {"ask": ["x"]}}),
        ("network.unix_sockets", {"network": {"unix_sockets": ["/run/docker.sock"]}}),
        ("vfs", {"vfs": {"mounts": {"/m": {"type": "memory"}}}}),
        ("vfs.file_events", {"vfs": {"file_events": True}}),
    ],
)
def test_what_it_would_ignore_is_an_error(project: Path, apple: Path, path: str, more: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=path.replace(".", r"\.")):
        make(project, **more)
    assert containers(apple) == []


def test_a_machine_has_the_size_of_the_limits(project: Path, apple: Path) -> None:
    with make(project, limits={"memory": "512m", "cpus": 2, "open_files": 100}) as sandbox:
        (told,) = (json.loads(one.read_text()) for one in apple.glob("container-*.json"))
        assert told["configuration"]["resources"] == {"cpus": "2", "memory": "512M"}
        assert sandbox.exec("ulimit -n").stdout == "100\n"


def test_on_a_mac_processes_are_counted_as_the_owners_and_covers_are_not_compared(
    a_mac: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 501)
    monkeypatch.setattr(os, "getegid", lambda: 20)
    plan = full_plan()
    plan.pids = 99
    plan.covers = [Cover("/Users/ann/project/.env", is_dir=False, inode=12345)]
    told = setup(plan)
    assert told["container"] == {"uid": 501, "gid": 20, "seen": []}
    assert told["rlimits"] == [[6, 100, 100]]  # RLIMIT_NPROC, as Linux numbers it
    assert [one["inode"] for one in told["mounts"] if "inode" in one] == [0]  # type: ignore[attr-defined]


# -- what is inside


def test_the_project_is_there_blocked_files_are_not_and_nothing_else_of_the_host_is(project: Path) -> None:
    (project / "code.txt").write_text("here")
    (project / ".env").write_text("PASSWORD=hunter2")
    (project.parent / "beside.txt").write_text("not for you")
    with make(project) as sandbox:
        assert sandbox.exec("cat code.txt && echo more > new.txt").stdout == "here"
        assert sandbox.exec("cat .env").exit_code != 0
        assert sandbox.exec(["cat", str(project.parent / "beside.txt")]).exit_code != 0
        seen = sandbox.exec("ls /.host /.sandbox 2>&1; cat /proc/self/mountinfo").stdout
        assert "hunter2" not in seen and "/.sandbox " not in seen
        assert "CapEff:\t0000000000000000" in sandbox.exec(["cat", "/proc/self/status"]).stdout
    assert (project / "new.txt").read_text() == "more\n"


def test_an_image_is_at_the_root(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox.images import manage
    from sandbox.images.importing import import_path

    monkeypatch.setenv("SANDBOX_CACHE_DIR", str(tmp_path / "cache"))
    manage.name(import_path(str(making.layout(tmp_path / "plain", [making.system()]))), "plain")
    with make(project, image="plain") as sandbox:
        assert "python3" not in sandbox.exec("ls /usr/bin /bin").stdout
        assert sandbox.exec("touch /made && ls /made").stdout == "/made\n"


def test_on_a_mac_an_image_must_be_named(project: Path, a_mac: None) -> None:
    with pytest.raises(ConfigError, match="image"):
        make(project)


# -- its network


@pytest.mark.parametrize("family", ["-4", "-6"])
def test_a_connection_inside_ends_at_the_gate_which_judges_it(project: Path, origin: Origin, family: str) -> None:
    network = {"allowed_hosts": ["good.test", "127.0.0.1"]}
    config = {"engine": "apple-container", "filesystem": {"root": str(project)}, "network": network}
    with Sandbox(config, resolve=lambda host, port: ["127.0.0.1"]) as sandbox:
        ask = f"curl {family} -sS --max-time 60 http://%s:{origin.port}/x"
        assert sandbox.exec(ask % "good.test").stdout == f"GET /x for good.test:{origin.port}\n"
        refused = sandbox.exec(ask % "bad.test").stdout
        assert "GET /x" not in refused and "bad.test" in refused
        big = f"head -c 3000000 /dev/zero | {ask % 'good.test'} --data-binary @-"
        assert sandbox.exec(big).stdout == "got 3000000"


class Answering(socketserver.ThreadingTCPServer):
    """Answers every connection with what it was sent, in capitals. Takes all that come at once."""

    request_queue_size = 256
    daemon_threads = True

    class RequestHandlerClass(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked = self.rfile.readline().split()[1].upper()
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + asked + b"\n")

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), self.RequestHandlerClass)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def test_many_connections_at_once_are_all_served(project: Path) -> None:
    config = {"filesystem": {"root": str(project)}, "network": {"allowed_hosts": ["good.test", "127.0.0.1"]}}
    with (
        Answering() as server,
        Sandbox({**config, "engine": "apple-container"}, resolve=lambda host, port: ["127.0.0.1"]) as sandbox,
    ):
        urls = " ".join(f"http://good.test:{server.server_address[1]}/x{number}" for number in range(60))
        done = sandbox.exec(f"curl -sS --parallel --parallel-max 60 {urls}")
        server.shutdown()
        assert sorted(done.stdout.split()) == sorted(f"/X{number}" for number in range(60)), done.stderr[-300:]


# -- its life


def test_nothing_is_left_when_it_ends(project: Path, apple: Path) -> None:
    with make(project) as sandbox:
        assert containers(apple) == [f"container-sandbox-{sandbox.id}.json"]
        (one,) = leftovers.listed(cli.Cli("apple-container"), "sandbox-")
        assert (one.id, one.state, one.owner_lives) == (sandbox.id, "running", True)
        shelf = Path(sandbox._running._directory.path)  # type: ignore[attr-defined]
        assert shelf.is_dir()
    assert containers(apple) == []
    assert not shelf.exists()


def test_a_machine_that_does_not_start_says_why_and_leaves_nothing(project: Path, apple: Path) -> None:
    with make(project):
        pass
    (apple / "images").write_text("another")  # the engine has lost our image meanwhile
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sandbox.engines.apple.engine.empty_image", lambda cli: "localhost/sandbox-empty:1")
        with pytest.raises(WallError, match="notFound"):
            make(project)
    assert containers(apple) == []


def test_prune_removes_a_machine_whose_owner_is_gone(project: Path, apple: Path) -> None:
    with make(project):
        (file,) = apple.glob("container-*.json")
        told = json.loads(file.read_text())
    idle = subprocess.Popen(["sleep", "1000"])
    told["configuration"] |= {"id": "sandbox-vm-old", "labels": {**told["configuration"]["labels"]}}
    told["configuration"]["labels"]["sandbox.owner"] = f"{idle.pid} 1"  # no process has begun then
    (apple / "container-sandbox-vm-old.json").write_text(json.dumps({**told, "pid": idle.pid}))
    assert leftovers.sweep() == ["sandbox-vm-old"]
    assert containers(apple) == []
    assert idle.wait(30) == -signal.SIGKILL


OWNER = """
import sys
import threading
from pathlib import Path
from sandbox import Sandbox
from sandbox.engines.container import cli
cli.PLACES, cli.PLATFORM = (sys.argv[1],), "darwin"
sandbox = Sandbox({"engine": "apple-container", "filesystem": {"root": sys.argv[2]}})
print(sandbox.id, flush=True)
sys.stdin.read()
"""


def test_a_killed_owners_machine_ends_by_itself(project: Path, apple: Path) -> None:
    words = [sys.executable, "-c", OWNER, str(apple.parent), str(project)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline()
        (file,) = apple.glob("container-*.json")
        machine = os.pidfd_open(json.loads(file.read_text())["pid"])
        owner.kill()
    waiting = select.poll()
    waiting.register(machine, select.POLLIN)
    assert waiting.poll(60_000), "the machine lives"
    os.close(machine)


# -- finding it


def test_doctor_and_platform_find_it_where_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    assert auto.tried("apple-container").works
    monkeypatch.setattr(platform, "names", lambda: ("apple-container",))
    told = platform.platform()
    assert (told["appleContainerAvailable"], told["recommended"]) == (True, "apple-container")


def test_on_a_mac_it_comes_after_seatbelt_and_before_docker() -> None:
    assert auto.names("darwin")[:3] == ("seatbelt", "apple-container", "docker")


def test_a_service_that_does_not_run_is_reported_with_its_remedy(apple: Path) -> None:
    apple.mkdir()
    (apple / "stopped").touch()
    with pytest.raises(EngineUnavailable, match="container system start"):
        named("apple-container").start()


def test_elsewhere_than_on_a_mac_a_program_of_that_name_is_not_run(
    monkeypatch: pytest.MonkeyPatch, apple: Path
) -> None:
    monkeypatch.setattr(cli, "PLATFORM", "linux")
    with pytest.raises(EngineUnavailable, match="macOS only"):
        named("apple-container").start()
    assert leftovers.sweep() == []
    assert not (apple / "words").exists()
    assert not platform.platform()["appleContainerAvailable"]
