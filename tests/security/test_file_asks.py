"""A blocked file that is touched asks its owner; allowed, the next open succeeds, in this sandbox and nowhere else."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.asks.question import FileSubject
from sandbox.errors import ConfigError
from sandbox.guards import file_asks, mount_in_namespace, tripwire
from sandbox.info import Ask
from tests.patience import assert_given_back, open_descriptors

CAN = os.access("/dev/fuse", os.R_OK | os.W_OK)
fuse = pytest.mark.skipif(not CAN, reason="/dev/fuse cannot be opened")

SECRET = "s3cret-value"


class Asked:
    """A sandbox whose owner answers as told; `touch` waits until the answer is carried out."""

    def __init__(self, project: Path, answer: str, **filesystem: Any) -> None:
        self.answer = answer
        self.asked: list[Ask] = []
        self._over = threading.Condition()
        self._ended = 0
        patterns = [".env", "secrets/", "*.key"]
        config = {"filesystem": {"ask": True, "root": str(project), "blocked_patterns": patterns, **filesystem}}
        self.sandbox = Sandbox(config, hooks=self)
        self.sandbox.on_event(self._hear)

    def on_ask(self, ask: Ask) -> str:
        self.asked.append(ask)
        self.about_to_answer()
        return self.answer

    def about_to_answer(self) -> None:
        """Just before the answer is given."""

    def _hear(self, event: dict[str, Any]) -> None:
        if event["type"] == "ask" and event["ask"]["state"] != "waiting":
            with self._over:
                self._ended += 1
                self._over.notify_all()

    def touch(self, command: str, answers: int = 1) -> None:
        """A first attempt: refused, and asked about."""
        result = self.sandbox.exec(command)
        assert result.exit_code != 0 and SECRET not in result.stdout
        with self._over:
            assert self._over.wait_for(lambda: self._ended >= answers, 20)

    def run(self, command: str) -> str:
        result = self.sandbox.exec(command)
        return result.stdout + result.stderr


Open = Callable[..., Asked]


def covered_again() -> None:
    """Waits until what was allowed once is covered again."""
    for thread in [one for one in threading.enumerate() if one.name == "sandbox-lifted"]:
        thread.join(20)


@pytest.fixture
def project(project: Path) -> Path:
    (project / ".env").write_text(SECRET)
    (project / "secrets").mkdir()
    (project / "secrets" / "db").write_text(SECRET)
    (project / "x.key").write_text(SECRET)
    return project


@pytest.fixture
def opened(project: Path) -> Iterator[Open]:
    made: list[Asked] = []

    def make(answer: str, **filesystem: Any) -> Asked:
        made.append(Asked(project, answer, **filesystem))
        return made[-1]

    yield make
    for one in made:
        one.sandbox.close()


@fuse
def test_an_allowed_file_can_be_read_from_the_next_open_on(opened: Open, project: Path) -> None:
    asked = opened("sandbox")
    asked.touch("cat .env")
    assert asked.run("cat .env; cat .env") == 2 * SECRET
    (ask,) = asked.asked
    program = "cat" if asked.sandbox._can.programs else "guest"
    assert (ask.kind, ask.path, ask.operation, ask.program) == ("file", str(project / ".env"), "read", program)
    assert ask.text == f"'{program}' wants to read the blocked file {project}/.env"
    assert ask.answers == ["once", "sandbox", "deny"]
    # The others are still blocked.
    assert "Permission denied" in asked.run("cat x.key")


@fuse
def test_what_was_allowed_to_be_read_cannot_be_changed(opened: Open, project: Path) -> None:
    asked = opened("sandbox")
    asked.touch("cat .env")
    said = asked.run("echo x > .env; chmod 777 .env; mv .env other; rm -f .env; cat .env")
    assert SECRET in said and (project / ".env").read_text() == SECRET


@fuse
def test_what_was_allowed_to_be_changed_can_be(opened: Open, project: Path) -> None:
    asked = opened("sandbox")
    asked.touch("echo x > x.key")
    assert asked.asked[0].operation == "write" and "wants to change" in asked.asked[0].text
    assert asked.run("echo changed > x.key") == "" and (project / "x.key").read_text() == "changed\n"


def test_what_is_beneath_a_cover_is_not_inherited_by_programs_that_are_started_meanwhile(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "blocked_patterns": [".env"]}}) as sandbox:
        namespace = os.open(f"/proc/{sandbox._running.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        hidden = mount_in_namespace.beneath(namespace, str(project / ".env"))
        os.close(namespace)
    assert hidden is not None and not os.get_inheritable(hidden)
    os.close(hidden)


@fuse
def test_once_is_one_open(opened: Open) -> None:
    asked = opened("once")
    asked.touch("cat .env")
    assert asked.run("cat .env") == SECRET
    covered_again()
    assert "Permission denied" in asked.run("cat .env")
    assert len(asked.asked) == 1


@fuse
def test_once_counts_an_open_that_comes_before_anything_else(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_once = threading.Event()

    class Slow(threading.Thread):
        def run(self) -> None:
            opened_once.wait(20)
            super().run()

    monkeypatch.setattr(file_asks, "Thread", Slow)
    asked = opened("once")
    asked.touch("cat .env")
    assert asked.run("cat .env") == SECRET
    opened_once.set()
    covered_again()
    assert "Permission denied" in asked.run("cat .env")


@fuse
def test_once_is_over_when_nobody_opens_it(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = opened("once")
    (ending,) = (one for one in asked.sandbox._endings if "FileAsks" in repr(one))
    monkeypatch.setattr(asked, "about_to_answer", lambda: setattr(ending.__self__, "_seconds", 0.01))  # type: ignore[attr-defined]
    asked.touch("cat .env")
    covered_again()
    assert "Permission denied" in asked.run("cat .env") and len(asked.asked) == 1


@fuse
def test_a_directory_is_lifted_whole(opened: Open) -> None:
    asked = opened("sandbox")
    asked.touch("cat secrets/db")
    assert str(asked.asked[0].path).endswith("/secrets")
    assert asked.run("ls secrets; cat secrets/db") == f"db\n{SECRET}"
    assert "Read-only file system" in asked.run("touch secrets/new")


@fuse
def test_a_denied_file_stays_blocked(opened: Open) -> None:
    asked = opened("deny")
    asked.touch("cat .env")
    assert "Permission denied" in asked.run("cat .env")


@fuse
def test_it_is_lifted_in_this_sandbox_alone(opened: Open) -> None:
    one, other = opened("sandbox"), opened("deny")
    one.touch("cat .env")
    assert SECRET in one.run("cat .env")
    assert SECRET not in other.run("cat .env")
    third = opened("deny")  # and the next one begins anew
    assert SECRET not in third.run("cat .env")


@fuse
def test_the_watch_for_later_files_leaves_it_free(opened: Open) -> None:
    asked = opened("sandbox")
    asked.touch("cat .env")
    assert asked.sandbox._guard.wait_until_watching(20)
    assert asked.run("cat .env") == SECRET


@fuse
def test_it_works_over_an_overlay(opened: Open, project: Path) -> None:
    asked = opened("sandbox", overlay=True)
    asked.touch("cat .env")
    assert asked.run("cat .env") == SECRET


@fuse
def test_what_is_refused_for_another_reason_is_not_asked_about(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws" / "credentials").write_text(SECRET)
    monkeypatch.setenv("HOME", str(home))
    (project / "denied").write_text(SECRET)
    (project / "token").write_text(SECRET)
    secrets = {"TOKEN": {"from_file": str(project / "token"), "hosts": ["a.test"]}}
    asked = Asked(project, "sandbox", deny_read=[str(project / "denied")])
    asked.sandbox.close()
    config = {
        "filesystem": {"ask": True, "root": str(project), "deny_read": [str(project / "denied")]},
        "network": {"secrets": secrets},
    }
    with Sandbox(config, hooks=asked) as sandbox:
        said = sandbox.exec("cat denied token ~/.aws/credentials")
        assert SECRET not in said.stdout
    assert asked.asked == []


@fuse
def test_without_anybody_there_a_touch_is_only_recorded(project: Path) -> None:
    events: list[str] = []
    with Sandbox({"filesystem": {"ask": True, "root": str(project)}}) as sandbox:
        sandbox.on_event(lambda event: events.append(str(event["type"])))
        assert sandbox.exec("cat .env").exit_code != 0
    assert "ask" not in events and "file" in events


@fuse
def test_everything_is_released(project: Path) -> None:
    Asked(project, "once").sandbox.close()
    before = open_descriptors()
    for _ in range(3):
        asked = Asked(project, "once")
        asked.touch("cat .env")
        asked.sandbox.close()
    assert_given_back(before)


def test_where_there_are_no_tripwires_it_is_an_error_that_says_why(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if CAN:
        monkeypatch.setattr(tripwire, "FUSE", "/dev/no-such-device")
    with pytest.raises(ConfigError, match=r"filesystem\.ask: needs tripwires: /dev/[a-z-]+ cannot be opened here \("):
        Sandbox({"filesystem": {"ask": True, "root": str(project)}})
    with pytest.raises(ConfigError, match=r"filesystem\.ask: needs isolation"):
        Sandbox({"mode": "off", "filesystem": {"ask": True, "root": str(project)}})
    with pytest.raises(ConfigError, match=r"network\.ask: needs isolation"):
        Sandbox({"mode": "off", "network": {"ask": True}, "filesystem": {"root": str(project)}})


def test_a_subject_that_writes_is_another_than_one_that_reads() -> None:
    assert FileSubject("/p/x", "read").grant == FileSubject("/p/x", "list").grant != FileSubject("/p/x", "write").grant


def test_a_tenant_sees_neither_the_control_socket_nor_the_counter(tmp_path: Path, project: Path) -> None:
    """Nothing inside can answer, or see the questions of others."""
    home = os.environ["SANDBOX_HOME"]
    with Sandbox({"network": {"ask": True}, "filesystem": {"root": str(project)}}) as sandbox:
        found = sandbox.exec(f"ls -la {home} 2>&1; ls {home}/vms 2>&1; find / -name socket -type s 2>/dev/null")
        assert "No such file" in found.stdout and "/socket" not in found.stdout.replace(home, "")
