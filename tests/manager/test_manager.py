"""A managed sandbox, with real walls."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from sandbox import ConfigError, Sandbox, SandboxError, SandboxManager, query_audit_feed
from sandbox.config.model import Config
from sandbox.layout.etc import tenant
from sandbox.manager.config import STANDARD_OPEN_FILES
from sandbox.manager.managers import Managers
from sandbox.manager.settings import ManagerSettings
from sandbox.manager.states import WrongState

QUICK = ManagerSettings(interval=0.05, patience=30.0, failures=2, first_pause=0.01, end_patience=5.0)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    return place


@pytest.fixture
def managed(workspace: Path) -> Iterator[Callable[..., SandboxManager]]:
    made: list[SandboxManager] = []

    def make(config: dict[str, Any] | None = None, **more: Any) -> SandboxManager:
        more.setdefault("settings", QUICK)
        made.append(SandboxManager({"mode": "standard", "workspaceRoot": str(workspace), **(config or {})}, **more))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def until(holds: Callable[[], object], what: str) -> None:
    """Waits for an event; the deadline is for a test that would hang."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_it_starts_runs_commands_and_stops(managed: Any) -> None:
    manager = managed()
    assert manager.state == "uninitialized"
    manager.start()
    assert manager.status()["containerId"] == manager.sandbox.id
    result = manager.exec("echo hello; exit 3")
    assert (result.exit_code, result.stdout) == (3, "hello\n")
    manager.stop()
    assert manager.state == "stopped"
    assert [one.metadata["to"] for one in manager.events()] == ["initializing", "ready", "stopping", "stopped"]


def test_what_does_not_fit_the_state_is_refused(managed: Any) -> None:
    manager = managed()
    for step in (manager.recover, lambda: manager.exec("true")):
        with pytest.raises(WrongState):
            step()
    manager.start()
    for step in (manager.start, manager.recover):
        with pytest.raises(WrongState):
            step()
    manager.stop()
    manager.stop()  # once more is no error
    with pytest.raises(WrongState):
        manager.exec("true")


def test_health_has_a_command_the_gate_the_disk_and_memory(managed: Any) -> None:
    manager = managed()
    manager.start()
    until(lambda: manager.status()["health"]["status"] == "healthy", "never looked at")
    assert set(manager.status()["health"]["checks"]) == {"command", "gate", "disk", "memory"}


def test_a_sandbox_that_dies_is_recovered_with_its_workspace(managed: Any, workspace: Path) -> None:
    manager = managed()
    manager.start()
    manager.exec("echo kept > kept.txt")
    first = manager.sandbox.id
    os.kill(manager.sandbox._running.pid, signal.SIGKILL)
    until(lambda: manager.state == "ready" and manager.sandbox.id != first, manager.state)
    assert manager.exec("cat kept.txt").stdout == "kept\n"
    path = [(one.metadata["from"], one.metadata["to"]) for one in manager.events() if one.type == "state"]
    assert path[-3:] == [("ready", "degraded"), ("degraded", "recovering"), ("recovering", "ready")]


def test_recovery_carries_an_overlays_changes_over(managed: Any, workspace: Path) -> None:
    (workspace / "old.txt").write_text("old")
    (workspace / "gone.txt").write_text("gone")
    config = Config.read({"filesystem": {"root": str(workspace), "overlay": True}})
    manager = SandboxManager(config, settings=QUICK)
    try:
        manager.start()
        manager.exec("echo new > old.txt; rm gone.txt; mkdir -p a/b; echo x > a/b/c; chmod 700 a/b/c; ln -s a/b l")
        first = manager.sandbox
        assert first is not None
        os.kill(first._running.pid, signal.SIGKILL)  # type: ignore[arg-type]
        until(lambda: manager.state == "ready" and manager.sandbox is not first, manager.state)
        said = manager.exec("cat old.txt a/b/c; ls gone.txt; stat -c %a a/b/c; readlink l").stdout
        assert said == "new\nx\n700\na/b\n"
    finally:
        manager.stop()
    assert (workspace / "old.txt").read_text() == "old"


def test_a_workspace_that_somebody_removed_is_noticed_and_made_again(managed: Any, workspace: Path) -> None:
    manager = managed(settings=ManagerSettings(interval=0.05, failures=1, auto_recover=False))
    manager.start()
    workspace.rmdir()
    until(lambda: manager.state == "degraded", manager.state)
    assert "is gone" in manager.status()["health"]["checks"]["disk"]
    manager.recover()
    assert workspace.is_dir()
    assert manager.exec("echo here > file; cat file").stdout == "here\n"


def test_one_that_gets_well_by_itself_is_ready_again(managed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = managed(settings=ManagerSettings(interval=0.02, failures=1, auto_recover=False))
    manager.start()
    with monkeypatch.context() as full:
        full.setattr("sandbox.manager.health.LEAST_DISK", 2**62)  # as if the disk were full
        until(lambda: manager.state == "degraded", manager.state)
        assert manager.exec("echo usable").stdout == "usable\n"
    until(lambda: manager.state == "ready", manager.state)


def test_attempts_end_and_each_pause_is_longer(managed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ManagerSettings(first_pause=1, longest_pause=5)
    assert [settings.backoff(attempt) for attempt in range(5)] == [0, 1, 2, 4, 5]
    tried = []

    def create(config: Config) -> Sandbox:
        tried.append(config)
        if len(tried) > 1:
            raise OSError(28, "No space left on device")
        return Sandbox(config)

    manager = managed(create=create, settings=ManagerSettings(interval=0.02, failures=1, attempts=3, first_pause=0.01))
    manager.start()
    os.kill(manager.sandbox._running.pid, signal.SIGKILL)
    until(lambda: len([one for one in manager.events() if one.type == "recovery"]) == 3, "three attempts")
    assert manager.state == "degraded"
    assert len(tried) == 4


def test_a_start_that_fails_says_why_and_can_be_tried_again(managed: Any) -> None:
    problems = [OSError(28, "No space left on device")]

    def create(config: Config) -> Sandbox:
        if problems:
            raise problems.pop()
        return Sandbox(config)

    manager = managed(create=create)
    with pytest.raises(OSError, match="No space left"):
        manager.start()
    assert manager.state == "stopped"
    assert "No space left" in manager.events()[-1].detail
    manager.start()
    assert manager.state == "ready"


def test_stop_ends_even_when_closing_hangs(managed: Any) -> None:
    class Stuck(Sandbox):
        def close(self, grace: float = 0.0) -> None:
            if not self._ready:  # still building
                super().close(grace)
                return
            Barrier(2).wait()

    manager = managed(create=Stuck, settings=ManagerSettings(interval=60, end_patience=0.1))
    manager.start()
    sandbox = manager.sandbox
    manager.stop()
    assert manager.state == "stopped"
    assert "by force" in manager.events()[-1].detail
    until(lambda: not Path(f"/proc/{sandbox._running.pid}").exists(), "the guest was killed")
    Sandbox.close(sandbox)


def test_of_many_that_start_stop_and_recover_at_once_nothing_is_left_behind(managed: Any) -> None:
    manager = managed()
    alive: list[Sandbox] = []

    def create(config: Config) -> Sandbox:
        alive.append(Sandbox(config))
        return alive[-1]

    manager._create = create
    together = Barrier(12)

    def act(step: Callable[[], None]) -> None:
        together.wait()
        for _ in range(3):
            try:
                step()
            except WrongState:
                pass

    threads = [Thread(target=act, args=(step,)) for step in (manager.start, manager.stop, manager.recover) * 4]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    manager.stop()
    assert manager.state == "stopped"
    assert all(one._closed for one in alive)


def test_events_reach_listeners_and_one_that_raises_changes_nothing(managed: Any, capsys: Any) -> None:
    manager = managed()
    heard: list[str] = []
    manager.on_event(lambda _: 1 / 0)
    end = manager.on_event(lambda one: heard.append(one.type))
    manager.start()
    end()
    manager.stop()
    assert heard == ["state", "state"]
    assert "ZeroDivisionError" in capsys.readouterr().err


# -- modes


@pytest.mark.root  # limits of processors need a control group, which a user may not have
def test_off_runs_on_the_host_and_the_others_behind_walls(managed: Any, tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    beside.write_text("the host's")
    look = f"cat {beside}"
    seen = {}
    for mode in ("off", "light", "standard", "max"):
        manager = managed({"mode": mode})
        manager.start()
        seen[mode] = manager.exec(look).exit_code == 0
        assert manager.walled is (mode != "off")
        manager.stop()
    assert seen == {"off": True, "light": False, "standard": False, "max": False}


@pytest.mark.root  # limits of processors need a control group, which a user may not have
def test_max_keeps_the_workspace_untouched_and_has_the_tightest_limits(managed: Any, workspace: Path) -> None:
    limits = {}
    for mode in ("light", "standard", "max"):
        manager = managed({"mode": mode})
        manager.start()
        manager.exec(f"echo {mode} > made-by-{mode}")
        limits[mode] = manager.exec("ulimit -n").stdout.strip()
        manager.stop()
    assert sorted(one.name for one in workspace.iterdir()) == ["made-by-light", "made-by-standard"]
    assert limits["max"] == "1024"
    assert limits["standard"] == str(STANDARD_OPEN_FILES) != limits["light"]


@pytest.mark.root  # limits of processors need a control group, which a user may not have
def test_a_change_of_mode_is_on_the_record_and_holds_at_once(managed: Any, workspace: Path) -> None:
    manager = managed({"mode": "light"})
    manager.start()
    before = len(query_audit_feed(type="sandbox_mode_transition"))
    manager.change_mode("max")
    found = query_audit_feed(type="sandbox_mode_transition")
    assert len(found) == before + 1
    assert found[-1]["metadata"] == {"from": "light", "to": "max"}
    manager.exec("echo x > file")
    manager.stop()
    assert not (workspace / "file").exists()
    with pytest.raises(ConfigError):
        manager.change_mode("none")


def test_the_last_hundred_steps_are_kept_the_newest_last(managed: Any) -> None:
    manager = managed()
    for number in range(60):
        manager.change_mode("light" if number % 2 else "off")
        manager.change_mode("standard")
    details = [one.detail for one in manager.events()]
    assert len(details) == 100
    assert details[-2:] == ["standard -> light", "light -> standard"]


# -- the specification's configuration


@pytest.mark.root  # limits of processors need a control group, which a user may not have
def test_every_field_of_the_specification_is_read(managed: Any, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (more / "file").write_text("bound\n")
    manager = managed(
        {
            "image": None,
            "containerPrefix": "agent",
            "workdir": "/workspace",
            "readOnlyRoot": True,
            "network": "none",
            "user": "1000:1000",
            "capDrop": ["ALL"],
            "env": {"WORD": "there"},
            "cpus": 2,
            "binds": [f"{more}:/more:ro"],
            "dns": [],
            "engineType": "auto",
            "browser": {
                "enabled": False, "image": "x", "cdpPort": 9222, "vncPort": 5900, "headless": True, "autoStart": False,
                "autoStartTimeoutMs": 1000,
            },
        }
    )  # fmt: skip
    manager.start()
    manager.exec("touch /workspace/x")
    said = manager.exec("echo $WORD; cat /more/file; ls /workspace; touch /more/x || echo read-only")
    assert said.stdout == "there\nbound\nx\nread-only\n"


@pytest.mark.root  # an ordinary user here has no control groups to hold them
def test_memory_processors_and_processes_are_limited_as_the_specification_says(managed: Any) -> None:
    manager = managed({"memory": "128m", "cpus": 1, "pidsLimit": 20})
    manager.start()
    assert manager.exec("head -c 400m /dev/zero | tail -c 300m >/dev/null").exit_code != 0
    many = manager.exec("for n in $(seq 40); do sleep 5 & done; jobs | wc -l")
    assert "fork" in many.stderr or many.exit_code != 0
    limits = manager.sandbox.config.limits
    assert (limits.memory, limits.cpus, limits.pids) == (128 * 2**20, 1, 20)


def test_what_is_never_so_here_is_told_as_an_event(managed: Any) -> None:
    told = [one.detail for one in managed({"readOnlyRoot": False}).events()]
    assert [detail.split()[0] for detail in told] == ["readOnlyRoot:"]
    assert managed({"dns": [], "readOnlyRoot": True}).events() == []
    name, uid, gid = tenant("user")
    assert [one.detail.split()[0] for one in managed({"user": "33:33"}).events()] == ["user:"]
    for same in (name, f"{uid}", f"{uid}:{gid}", "0:0"):
        assert managed({"user": same}).events() == []


def test_a_field_that_is_wrong_is_named_as_it_was_spelled() -> None:
    wrong = {"memory": "much", "mode": "half", "binds": ["x"], "dns": ["192.0.2.1"]}
    for field, value in wrong.items():
        with pytest.raises(ConfigError) as problem:
            SandboxManager({field: value})
        assert problem.value.path.startswith(field)
    with pytest.raises(ConfigError):
        SandboxManager({"unknown": 1})


def _cannot_record(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_does_not_keep_a_sandbox_from_being_stopped(managed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = managed()
    manager.start()
    sandbox = manager.sandbox
    with monkeypatch.context() as full:
        full.setattr("sandbox.audit.record.Record.write", _cannot_record)
        manager.stop()
        assert manager.state == "stopped"
        assert "record" in [one.type for one in manager.events()]
    with pytest.raises(SandboxError):
        sandbox.exec("true")


def test_a_start_that_cannot_be_recorded_can_be_tried_again(managed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = managed()
    with monkeypatch.context() as full:
        full.setattr("sandbox.audit.record.Record.write", _cannot_record)
        with pytest.raises(OSError, match="No space left"):
            manager.start()
    manager.start()
    assert manager.exec("echo works").stdout == "works\n"


def test_a_start_whose_end_cannot_be_recorded_leaves_nothing_running(
    managed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Sandbox] = []
    full = monkeypatch.context()

    def create(config: Config) -> Sandbox:
        made.append(Sandbox(config))
        full.__enter__().setattr("sandbox.audit.record.Record.write", _cannot_record)
        return made[-1]

    manager = managed(create=create)
    with pytest.raises(OSError, match="No space left"):
        manager.start()
    full.__exit__(None, None, None)
    assert (manager.state, manager.sandbox) == ("stopped", None)
    with pytest.raises(SandboxError):
        made[0].exec("true")


def test_the_mode_cannot_be_changed_while_a_sandbox_is_being_built(managed: Any) -> None:
    refused: list[WrongState] = []

    def create(config: Config) -> Sandbox:
        with pytest.raises(WrongState) as caught:
            manager.change_mode("max")
        refused.append(caught.value)
        return Sandbox(config)

    manager = managed(create=create)
    manager.start()
    assert len(refused) == 1
    assert manager.status()["mode"] == "standard"


def test_one_that_another_has_replaced_starts_nothing(managed: Any) -> None:
    """A request for the old one may be under way while its name is given to another."""
    managers = Managers(lambda name, config: managed(dict(config or {})))
    old = managers.add("one", {})
    new = managers.add("one", {})
    with pytest.raises(WrongState):
        old.start()
    new.start()
    with pytest.raises(SandboxError, match="stop it first"):
        managers.add("one", {})
    assert managers.get("one") is new and new.exec("true").exit_code == 0
