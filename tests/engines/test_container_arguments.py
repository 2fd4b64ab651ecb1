"""What a container engine is told, and what it says of itself, without one. `UPDATE_GOLDEN=1` writes the files anew."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sandbox import EngineUnavailable, LimitUnavailable, Sandbox
from sandbox.config.model import Limits
from sandbox.engines import auto, bubblewrap, platform
from sandbox.engines.container import cli, engine, info
from sandbox.engines.container.arguments import run_arguments
from sandbox.engines.container.cli import Cli
from sandbox.engines.container.info import Info
from sandbox.engines.container.limits import refuse_unheld
from sandbox.engines.container.seccomp import profile
from sandbox.plan.plan import Plan

GOLDEN = Path(__file__).parent / "golden"
ALL = frozenset({"memory", "cpu", "pids"})


def said(**more: object) -> Info:
    known: dict[str, object] = {"version": "1", "rootless": False, "local": True, "where": "here"}
    return Info(**{**known, "controllers": ALL, "cgroup_version": 2, **more})  # type: ignore[arg-type]


def limited() -> Plan:
    plan = Plan()
    plan.id = "vm-1"
    plan.limits = Limits(memory=2**29, cpus=1.5)
    plan.pids = 100
    plan.show("/dev/fuse", "/dev/.fuse", False, device=True)
    return plan


def plain() -> Plan:
    plan = Plan()
    plan.id = "vm-1"
    return plan


CASES = {
    "root": (limited, said(security=frozenset({"apparmor", "selinux"})), "runsc"),
    "rootless": (plain, said(rootless=True, controllers=frozenset()), None),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_becomes_the_words_we_know(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    make, told, runtime = CASES[name]
    words = run_arguments(
        make(),
        told,
        shelf="/home/ann/.sandbox/containers/vm-1",
        image="localhost/sandbox-empty:1",
        labels={"sandbox.id": "vm-1"},
        ulimits={"nofile": (1024, 4096)},
        runtime=runtime,
    )
    text = "".join(f"{word}\n" for word in words)
    file = GOLDEN / f"container-{name}.txt"
    if "UPDATE_GOLDEN" in os.environ:
        file.write_text(text)
    assert text == file.read_text()


def test_a_guest_for_another_user_than_the_engines_root_may_become_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    told = said()
    for uid, wanted in ((0, False), (1000, True)):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        words = run_arguments(plain(), told, shelf="/s", image="i", labels={}, ulimits={}, runtime=None)
        assert ("SETUID" in words, "SETGID" in words) == (wanted, wanted)


def test_the_first_filter_lets_the_guest_mount_and_nobody_load_a_module() -> None:
    rules = json.loads(profile())
    refused = {name for rule in rules["syscalls"] for name in rule["names"]}
    assert rules["defaultAction"] == "SCMP_ACT_ALLOW"
    assert {"init_module", "bpf", "kexec_load", "io_uring_setup", "open_by_handle_at"} <= refused
    assert not refused & {"mount_setattr", "move_mount", "open_tree", "fsopen", "pivot_root", "unshare", "seccomp"}


class Answering:
    """An engine's command that says this of itself."""

    name = "docker"

    def __init__(self, told: object) -> None:
        self._told = told

    def json(self, *_: str) -> object:
        return self._told


DOCKER = {
    "ServerVersion": "28.0\x1b[2J",
    "OSType": "linux",
    "KernelVersion": os.uname().release,
    "OperatingSystem": "Debian",
    "MemoryLimit": True,
    "CpuCfsQuota": True,
    "PidsLimit": True,
    "CgroupVersion": "2",
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=default", "name=rootless"],
    "Runtimes": {"runc": {}, "runsc": {}},
}
PODMAN = {
    "host": {
        "cgroupVersion": "v1",
        "cgroupControllers": [],
        "kernel": os.uname().release,
        "os": "linux",
        "security": {"rootless": True, "selinuxEnabled": True},
    },
    "version": {"Version": "4.3.1"},
}


def asked(told: object) -> Info:
    return info.ask(Answering(told))  # type: ignore[arg-type]


def test_docker_says_what_it_can_hold() -> None:
    told = asked(DOCKER)
    assert (told.local, told.rootless, told.cgroup_version, told.controllers) == (True, True, 2, ALL)
    assert (set(told.security), set(told.runtimes)) == ({"apparmor"}, {"runc", "runsc"})
    assert told.version.isprintable()


def test_podman_without_delegated_groups_holds_no_limit() -> None:
    told = asked(PODMAN)
    assert (told.rootless, set(told.controllers), set(told.security)) == (True, set(), {"selinux"})
    plan = plain()
    for limits, name in ((Limits(memory=2**29), "memory"), (Limits(cpus=1.0), "cpus")):
        plan.limits = limits
        with pytest.raises(LimitUnavailable, match=f"limits.{name}"):
            refuse_unheld(plan, told, "podman")


@pytest.mark.parametrize(
    "told",
    [
        {**DOCKER, "OperatingSystem": "Docker Desktop"},
        {**DOCKER, "KernelVersion": "0.0.0"},
        {**PODMAN, "host": {**PODMAN["host"], "serviceIsRemote": True}},  # type: ignore[dict-item]
    ],
)
def test_an_engine_that_cannot_see_this_machines_files_is_refused(
    told: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine, "ask", lambda _: asked(told))
    monkeypatch.setattr(cli, "find", lambda name: "/nowhere/docker")
    with pytest.raises(EngineUnavailable, match="runs elsewhere"):
        Sandbox({"engine": "docker", "filesystem": {"root": str(tmp_path)}})


@pytest.mark.parametrize("told", [{"ServerErrors": ["Cannot connect to \x1b[31m"]}, {}, [], None, "no", {"host": None}])
def test_an_engine_that_does_not_answer_is_an_error_fit_for_a_terminal(told: object) -> None:
    if told == {"host": None}:
        assert not asked(told).local
        return
    with pytest.raises(EngineUnavailable) as caught:
        asked(told)
    assert str(caught.value).isprintable()


def test_a_command_on_the_path_of_the_project_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "docker"
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cli, "PLACES", ("/nowhere",))
    with pytest.raises(EngineUnavailable, match="not installed"):
        Cli("docker")
    assert not (tmp_path / "ran").exists()


def planted_engine(place: Path, script: str) -> None:
    (place / "docker").write_text(f"#!/bin/sh\n{script}\n")
    (place / "docker").chmod(0o755)


def test_an_answer_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted_engine(tmp_path, "exec cat /dev/zero")
    monkeypatch.setattr(cli, "PLACES", (str(tmp_path),))
    monkeypatch.setattr(cli, "MOST", 1000)
    with pytest.raises(cli.CommandFailed, match="too long"):
        Cli("docker").run("info")


def test_a_command_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted_engine(tmp_path, "exec sleep 1000")
    monkeypatch.setattr(cli, "PLACES", (str(tmp_path),))
    with pytest.raises(EngineUnavailable, match="did not answer"):
        Cli("docker").run("info", patience=0.1)


# -- `auto`


@pytest.fixture
def with_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Docker that answers questions, and no Podman."""
    (tmp_path / "told").write_text(json.dumps(DOCKER))
    planted_engine(tmp_path, f"cat {tmp_path}/told")
    monkeypatch.setattr(cli, "PLACES", (str(tmp_path),))


@pytest.mark.usefixtures("with_docker")
def test_auto_prefers_process_walls_and_falls_back_to_a_container_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sandbox.config.model import Config
    from sandbox.engines.choose import engine_name

    assert engine_name(Config()) == "bubblewrap"
    monkeypatch.setattr(bubblewrap, "PLACES", ("/nowhere/bwrap",))
    assert engine_name(Config()) == "docker"
    assert (auto.asked("docker").works, auto.asked("podman").works) == (True, False)
    assert "not installed" in auto.asked("podman").why


def test_the_platform_is_described_for_the_specifications_clients(
    with_docker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = platform.platform()
    assert list(told) == [
        *("platform", "arch", "dockerInstalled", "dockerRunning", "dockerAvailable"),
        *("appleContainerAvailable", "wsl2", "recommended", "reason", "candidates"),
    ]
    # This Docker answers, but runs nothing.
    assert (told["dockerInstalled"], told["dockerRunning"], told["dockerAvailable"]) == (True, True, False)
    assert (told["recommended"], told["wsl2"]) == ("bubblewrap", False)
    assert "bubblewrap comes first" in told["reason"]
    assert [one["engine"] for one in told["candidates"]] == ["bubblewrap", "docker", "podman"]
    assert platform.is_wsl2("5.15.90.1-microsoft-standard-WSL2")


def test_docker_is_started_by_the_first_thing_that_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "told").write_text(json.dumps(DOCKER))
    planted_engine(tmp_path, f"[ -e {tmp_path}/up ] && exec cat {tmp_path}/told; echo no daemon >&2; exit 1")
    monkeypatch.setattr(cli, "PLACES", (str(tmp_path),))
    starters = (("/nowhere/x",), ("/bin/false",), ("/bin/touch", f"{tmp_path}/up"))
    monkeypatch.setattr(platform, "STARTERS", {"linux": starters})
    assert platform.start_docker() == f"/bin/touch {tmp_path}/up"
    assert platform.start_docker() == ""  # it runs already
