"""Blocked files that appear while a sandbox lives."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from queue import Queue

import pytest

from sandbox import Sandbox
from sandbox.audit.feed import subscribe_audit_feed
from sandbox.errors import SandboxClosed
from sandbox.guards import mount_in_namespace
from sandbox.guards.late_covers import HIDDEN_LATE, TOO_MANY
from sandbox.guards.late_masks import NO_QUEUE, NOT_REMEMBERED, LateMasks
from sandbox.guards.pace import BEHIND
from sandbox.guards.scan import Scanner
from tests.patience import assert_given_back, open_descriptors

pytestmark = pytest.mark.walls

SECRET = "hunter2-never-to-be-seen"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / "sub").mkdir(parents=True)
    return tmp_path / "project"


class Watched:
    """A sandbox that is being watched over, and what was covered in it."""

    def __init__(self, project: Path, state: dict[str, object] | None = None, **filesystem: object) -> None:
        self.sandbox = Sandbox({"filesystem": {"root": str(project), **filesystem}, "state": state or {}})
        self.covered: Queue[str] = Queue()
        self._end = subscribe_audit_feed(
            lambda entry: (
                self.covered.put(str(entry["target"]))
                if entry.get("operation") == "cover" and entry.get("sandbox") == self.sandbox.id
                else None
            )
        )

    def __enter__(self) -> Watched:
        assert self.sandbox._guard.wait_until_watching(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self.sandbox.close()

    def hidden(self, path: Path) -> bool:
        """Waits for the cover, then says whether it holds."""
        while self.covered.get(timeout=20) != str(path):
            pass
        return SECRET not in self.sandbox.exec(["cat", str(path)]).stdout


def test_a_file_behind_a_link_into_packages_that_a_tenant_made_meanwhile_is_covered(project: Path) -> None:
    (project / "node_modules" / "pkg").mkdir(parents=True)
    (project / "node_modules" / "pkg" / "cacert.pem").write_text("for everybody")
    with Watched(project) as watched:
        assert watched.sandbox.exec("mkdir node_modules/app; ln -s node_modules/app app").ok
        (project / "app" / ".env").write_text(SECRET)
        assert watched.hidden(project / "node_modules" / "app" / ".env")
        assert watched.sandbox.exec("cat node_modules/pkg/cacert.pem").stdout == "for everybody"


def test_a_blocked_file_made_on_the_host_later_is_covered(project: Path) -> None:
    with Watched(project) as watched:
        (project / ".env").write_text(SECRET)
        assert watched.hidden(project / ".env")
        (project / "sub" / "server.pem").write_text(SECRET)
        assert watched.hidden(project / "sub" / "server.pem")
        denied = watched.sandbox.exec("cat .env; umount .env; rm -f .env; mv .env x; cat x")
        assert SECRET not in denied.stdout
        # Nor is the cover a scratch place without a bound.
        assert "Read-only" in watched.sandbox.exec("chmod 600 .env; echo x > .env").stderr
    assert (project / ".env").read_text() == SECRET


@pytest.mark.parametrize("name", [".env", "sub/.env", "sub/.aws"])
def test_in_an_overlay_it_is_covered_also_where_a_tenant_has_looked_for_it_before(project: Path, name: str) -> None:
    with Watched(project, overlay=True) as watched:
        assert not watched.sandbox.exec(["test", "-e", name]).ok
        if name.endswith(".aws"):
            (project / name).mkdir()
            (project / name / "config").write_text(SECRET)
        else:
            (project / name).write_text(SECRET)
        assert watched.hidden(project / name)
        told = watched.sandbox.exec(["ls", f"{name}/"])  # not only until the kernel forgets that it was not there
        assert "Permission denied" in told.stderr or "Not a directory" in told.stderr
        assert watched.sandbox.changes() == []
    assert watched.sandbox.apply(overwrite=True).applied == []
    kept = project / name / "config" if name.endswith(".aws") else project / name
    assert kept.read_text() == SECRET


def test_saving_by_rename_as_editors_do_does_not_uncover(project: Path) -> None:
    (project / ".env").write_text("old")
    with Watched(project) as watched:
        for turn in range(3):
            (project / "4913").write_text(SECRET)
            os.rename(project / "4913", project / ".env")
            assert watched.hidden(project / ".env"), turn


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("private.txt", "private.txt"),
        ("sub/deep/private.txt", "sub/deep"),
        ("sub/deep/private.txt", "sub/*/private.txt"),
        ("sub/deep/more/private.txt", "sub/**/private.txt"),
        ("sub/private.db", "**/*.db"),
        ("data/private.txt", "data"),
    ],
)
@pytest.mark.parametrize("how", ["made", "saved by renaming"])
def test_what_deny_read_names_is_covered_when_it_appears(project: Path, name: str, entry: str, how: str) -> None:
    path = project / name
    (project / "data" / "public").mkdir(parents=True)
    if how != "made":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old")
    with Watched(project, deny_read=[entry], allow_read=["data/public"]) as watched:
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "4913").write_text(SECRET)
        os.rename(path.parent / "4913", path)
        watched.sandbox._guard.catch_up(60)
        assert SECRET not in watched.sandbox.exec(["cat", str(path)]).stdout
        (project / "data" / "public" / "x").write_text("for everybody")
        watched.sandbox._guard.catch_up(60)
        assert watched.sandbox.exec("cat data/public/x").stdout == "for everybody"


def test_the_file_of_a_secret_is_covered_when_it_is_renewed(project: Path) -> None:
    token = project / "sub" / "token"
    token.write_text("old-and-long-enough")
    secret = {"from_file": str(token), "hosts": ["host.example"]}
    config = {"filesystem": {"root": str(project)}, "network": {"secrets": {"TOKEN": secret}}}
    with Sandbox(config) as sandbox:
        assert sandbox._guard.wait_until_watching(60)
        (project / "sub" / "renewed").write_text(SECRET)
        os.rename(project / "sub" / "renewed", token)
        sandbox._guard.catch_up(60)
        assert SECRET not in sandbox.exec("cat sub/token").stdout


def test_a_directory_with_blocked_files_moved_in_is_covered(project: Path, tmp_path: Path) -> None:
    deep = tmp_path / "elsewhere" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "id.key").write_text(SECRET)
    with Watched(project) as watched:
        os.rename(tmp_path / "elsewhere", project / "moved")
        assert watched.hidden(project / "moved" / "a" / "b" / "id.key")
        (project / "moved" / "a" / ".env").write_text(SECRET)
        assert watched.hidden(project / "moved" / "a" / ".env")
        (project / "sub" / ".aws").mkdir()
        (project / "sub" / ".aws" / "credentials").write_text(SECRET)
        assert watched.hidden(project / "sub" / ".aws")
        assert SECRET not in watched.sandbox.exec("cat sub/.aws/credentials; chmod 700 sub/.aws; ls sub/.aws").stdout


CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


def test_a_socket_that_a_program_of_the_host_makes_later_is_covered(project: Path) -> None:
    place = project / "sub" / "agent.sock"
    with Watched(project) as watched, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        while watched.covered.get(timeout=20) != str(place):
            pass
        assert watched.sandbox.exec(["/usr/bin/python3", "-c", CONNECT, str(place)]).exit_code != 0


def test_a_socket_that_a_tenant_makes_is_its_own(project: Path) -> None:
    serve = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('{}'); s.listen(); print(flush=True); s.accept()"
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        for early, name in ((True, "early.sock"), (False, "late.sock")):
            with sandbox.spawn(["/usr/bin/python3", "-c", serve.format(name)]) as server:
                server.read()
                assert sandbox._guard.wait_until_watching(60)
                if not early:  # a blocked file that appeared after it is covered after it was looked at
                    (project / ".env").touch()
                    while sandbox.exec("test -r .env").exit_code == 0:
                        pass
                assert sandbox.exec(["/usr/bin/python3", "-c", CONNECT, name]).exit_code == 0, name


def test_what_was_made_before_the_watch_began_is_covered_too(project: Path) -> None:
    watched = Watched(project)
    (project / ".env").write_text(SECRET)
    with watched:
        assert SECRET not in watched.sandbox.exec("cat .env").stdout


def test_a_tenant_that_makes_such_names_by_the_hundred_fills_nothing(project: Path) -> None:
    with Watched(project) as watched:
        watched.sandbox.exec("for i in $(seq 400); do echo x > $i.pem; done")
        (project / ".env").write_text(SECRET)
        assert watched.sandbox.exec("until ! cat .env; do :; done", timeout=20).exit_code == 0
        assert watched.covered.qsize() <= 110


MAKE = """
import itertools
for number in itertools.count():
    open(f"{number}.pem", "w").close()
"""
#: Faster than making files: one gets ever new names.
FLOOD = """
import itertools, os
os.close(os.open("sub/0", os.O_CREAT))
for number in itertools.count():
    os.rename(f"sub/{number}", f"sub/{number + 1}")
    if number == 3000:
        print(flush=True)
"""


def python(program: str) -> list[str]:
    return ["/usr/bin/python3", "-c", program]


def test_a_tenant_that_makes_too_many_is_ended_and_the_person_learns_why(project: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sandbox", "run", "--", *python(MAKE)]
    env = {**os.environ, "SANDBOX_HOME": str(tmp_path / "home")}
    run = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 125 and TOO_MANY in run.stderr and HIDDEN_LATE in run.stderr
    assert TOO_MANY in (tmp_path / "home" / "audit" / "audit.jsonl").read_text()


def test_a_blocked_file_that_cannot_be_remembered_ends_the_sandbox_before_it_is_moved(
    project: Path, tmp_path: Path
) -> None:
    """As on a full disk: the next run would read it under another name."""
    home = tmp_path / "home"
    wait = "echo; until [ -e sub/x.txt ]; do :; done; sleep 1; mv sub elsewhere"
    command = [sys.executable, "-m", "sandbox", "run", "--", "sh", "-c", wait]
    env = {**os.environ, "SANDBOX_HOME": str(home)}
    home.mkdir()
    (home / "config.yaml").write_text("filesystem: {deny_read: [sub/x.txt]}\n")
    with subprocess.Popen(
        command, cwd=project, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None and run.stdout.readline()
        (home / "blocked.new").mkdir()  # no list can be written, not even by root
        (tmp_path / "x.txt").write_text(SECRET)
        os.rename(tmp_path / "x.txt", project / "sub" / "x.txt")
        _, said = run.communicate()
    assert run.returncode == 125 and NOT_REMEMBERED in said
    (home / "blocked.new").rmdir()
    read = [*command[:-1], "cat */x.txt"]
    assert SECRET not in subprocess.run(read, cwd=project, env=env, capture_output=True, text=True, check=False).stdout


def test_a_tenant_that_makes_names_without_end_is_stopped_until_a_new_file_is_covered(project: Path) -> None:
    def names() -> int:
        return max(map(int, os.listdir(project / "sub")), default=0)

    made = []
    with Watched(project) as watched, watched.sandbox.spawn(python(FLOOD)) as flooding:
        flooding.read()
        for turn in range(10):
            (project / f"{turn}.pem").write_text(SECRET)
            before = names()
            assert watched.hidden(project / f"{turn}.pem")
            made.append(names() - before)
        flooding.kill()
    # Unless it is stopped, it makes tens of thousands meanwhile, because each is looked at.
    assert min(made) < 2 * BEHIND


def test_the_person_is_told_that_a_file_was_hidden_only_after_it_appeared(project: Path, tmp_path: Path) -> None:
    env = {**os.environ, "SANDBOX_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "sandbox", "run", "--", "sh", "-c", "echo x > .env; until ! cat .env; do :; done"]
    run = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and f"sandbox: {HIDDEN_LATE}\n" in run.stderr
    command = [sys.executable, "-m", "sandbox", "run", "--", "true"]
    run = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and HIDDEN_LATE not in run.stderr


def test_a_sandbox_can_be_paused_and_closed_while_a_tenant_floods(project: Path) -> None:
    with Watched(project) as watched, watched.sandbox.spawn(python(FLOOD)) as flooding:
        flooding.read()
        watched.sandbox.pause()
        for number in range(2 * BEHIND):
            (project / f"host{number}").touch()
        (project / ".env").write_text(SECRET)
        watched.sandbox.resume()
        assert watched.hidden(project / ".env")
        watched.sandbox.close()


TAKE_ALL = """
import ctypes, sys
libc = ctypes.CDLL(None)
while libc.inotify_init1(0) >= 0: pass
print(flush=True)
sys.stdin.read()
"""


def test_a_tenant_cannot_use_up_what_the_watch_needs(project: Path) -> None:
    with (
        Sandbox({"filesystem": {"root": str(project)}}) as sandbox,
        sandbox.spawn(["/usr/bin/python3", "-c", TAKE_ALL]) as greedy,
    ):
        assert greedy.read() == b"\n"
        ours = ctypes.CDLL(None).inotify_init1(os.O_CLOEXEC)
        assert ours >= 0
        os.close(ours)
    with Watched(project) as watched:
        (project / ".env").write_text(SECRET)
        assert watched.hidden(project / ".env")


def test_ordinary_and_allowed_files_stay_readable(project: Path) -> None:
    with Watched(project) as watched:
        (project / ".env.example").write_text("template")
        (project / "main.py").write_text("code")
        (project / "last.pem").write_text(SECRET)
        assert watched.hidden(project / "last.pem")
        assert watched.sandbox.exec("cat .env.example main.py").stdout == "templatecode"


def test_a_sandbox_that_ends_at_once_leaves_no_watch_behind(project: Path) -> None:
    import threading

    before, threads = open_descriptors(), set(threading.enumerate())
    for _ in range(5):
        Sandbox({"filesystem": {"root": str(project)}}).close()
    assert not [one for one in threading.enumerate() if one.name.startswith("sandbox-") and one not in threads]
    assert_given_back(before)


def queues() -> int:
    """The inotify queues of this process."""
    own = "/proc/self/fd"
    found = 0
    for name in os.listdir(own):
        try:
            found += os.readlink(f"{own}/{name}") == "anon_inode:inotify"
        except FileNotFoundError:
            pass
    return found


def test_the_sandboxes_of_a_process_share_one_inotify_queue_and_each_covers_what_is_its_own(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("shared", "alone")]
    for place in places:
        place.mkdir()
    with Watched(places[1]) as other, Watched(places[0]) as kept:
        with Watched(places[0]) as ended:
            assert queues() == 1
            (places[0] / ".env").write_text(SECRET)
            assert ended.hidden(places[0] / ".env")
            assert kept.hidden(places[0] / ".env")
        # One that has ended takes nobody's watch along, although the directory was theirs together.
        (places[0] / "late.pem").write_text(SECRET)
        assert kept.hidden(places[0] / "late.pem")
        (places[1] / ".env").write_text(SECRET)
        assert other.hidden(places[1] / ".env")
        assert str(places[0] / "late.pem") not in other.sandbox.exec("cat /proc/self/mountinfo").stdout
    assert queues() == 0


def without_queues(command: list[str]) -> list[str]:
    """The command where its user has no inotify queue at all: a user namespace has a number of its own."""
    none = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "sh", "-c", none, "sh", *command]


TELL = """
from sandbox import Sandbox
with Sandbox() as sandbox:
    assert sandbox._guard.wait_until_watching(60)
    print(sandbox.notices[-1])
"""


def test_without_an_inotify_queue_there_is_a_notice_and_the_record_says_so(project: Path, tmp_path: Path) -> None:
    env = {**os.environ, "SANDBOX_HOME": str(tmp_path / "home")}
    told = subprocess.run(
        without_queues([sys.executable, "-c", TELL]), cwd=project, env=env, capture_output=True, text=True, check=False
    )
    assert told.stdout == f"{NO_QUEUE}\n", told.stderr
    assert NO_QUEUE in (tmp_path / "home" / "audit" / "audit.jsonl").read_text()


def test_run_says_at_its_end_that_later_files_were_not_hidden(project: Path, tmp_path: Path) -> None:
    env = {**os.environ, "SANDBOX_HOME": str(tmp_path / "home")}
    command = without_queues([sys.executable, "-m", "sandbox", "run", "--", "cat"])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=project, env=env, stdin=pipe, stderr=pipe, text=True) as run:
        record = ["tail", "--retry", "-n", "+1", "-F", str(tmp_path / "home" / "audit" / "audit.jsonl")]
        with subprocess.Popen(record, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as reader:
            assert reader.stdout is not None
            assert any(NO_QUEUE in line for line in reader.stdout)
            reader.kill()
        assert f"sandbox: {NO_QUEUE}\n" in run.communicate()[1]


def test_a_name_at_which_it_fails_does_not_end_the_covering(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox.guards.repositories import Repositories

    look = Repositories.look

    def stumbles(self: Repositories, path: str) -> bool:
        if path.endswith("/stumble"):
            raise ValueError("embedded null byte")
        return look(self, path)

    monkeypatch.setattr(Repositories, "look", stumbles)
    with Watched(project) as watched:
        watched.sandbox.exec(["touch", "stumble"])
        (project / ".env").write_text(SECRET)
        assert watched.hidden(project / ".env")
        (project / "stumble").unlink()
        watched.sandbox.exec(["touch", "stumble"])
        (project / "sub" / ".env").write_text(SECRET)
        assert watched.hidden(project / "sub" / ".env")


def test_what_cannot_be_looked_at_is_hidden(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumbles(self: LateMasks, search: object, path: str, is_dir: bool) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(LateMasks, "_blocked", stumbles)
    with Watched(project) as watched:
        (project / ".env").write_text(SECRET)
        assert watched.hidden(project / ".env")
        assert watched.sandbox.exec("true").ok


def test_a_search_that_fails_ends_the_sandbox(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumbles(self: Scanner) -> None:
        raise OSError("too many open files")

    with Watched(project) as watched:
        monkeypatch.setattr(Scanner, "look", stumbles)
        watching = watched.sandbox._guard._watching
        assert watching is not None and watching._masks is not None
        watching._masks._hear([(None, False)])  # as when the kernel's queue has run over
        with pytest.raises(SandboxClosed):
            while True:
                watched.sandbox.exec("true")


def test_a_directory_that_is_renamed_meanwhile_keeps_nothing_else_from_being_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = mount_in_namespace._one

    def renamed(calls: mount_in_namespace._Calls, name: bytes) -> int:
        if name.endswith(b"/gone"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if name.endswith(b"/odd"):
            raise OSError(errno.ENFILE, "Too many open files in system")
        return one(calls, name)

    paths = [str(tmp_path / name) for name in ("gone", "odd", "there")]
    for path in paths:
        Path(path).write_text("HIDDEN")
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        monkeypatch.setattr(mount_in_namespace, "_one", renamed)
        namespace = os.open(f"/proc/{sandbox._running.pid}/ns/mnt", os.O_RDONLY)
        answers = [why for _, why in mount_in_namespace.cover(namespace, paths)]
        os.close(namespace)
        assert answers == ["", os.strerror(errno.ENFILE), None]
        assert not sandbox.exec("cat there").ok
