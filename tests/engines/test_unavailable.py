"""Machines that cannot build the walls: a clear error, and nothing that runs without them."""

from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path

import pytest

from sandbox import EngineUnavailable, Sandbox, WallError
from sandbox.engines import bubblewrap, namespaces
from sandbox.engines.bubblewrap import Bubblewrap
from sandbox.engines.container import cli
from sandbox.guest import frames
from sandbox.guest.guest import Guest

REPOSITORY = Path(__file__).resolve().parents[2]


def test_without_bubblewrap_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "PLACES", ("/nowhere/bwrap",))
    monkeypatch.setattr(cli, "PLACES", ("/nowhere",))  # nor is there a container engine to take instead
    with pytest.raises(EngineUnavailable, match="apt install bubblewrap"):
        Sandbox({"filesystem": {"root": str(tmp_path)}})
    assert [one.ok for one in Bubblewrap().findings()] == [False]


def test_a_bwrap_on_the_path_of_the_project_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "bwrap"
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        assert sandbox.exec("true").ok
    assert not (tmp_path / "ran").exists()


def test_where_namespaces_are_forbidden_the_error_says_so_and_nothing_runs(tmp_path: Path) -> None:
    # A place where new user namespaces are refused is at hand: the inside of a sandbox.
    config = {"filesystem": {"root": str(tmp_path), "allow_read": [str(REPOSITORY), sys.prefix]}}
    with Sandbox(config) as sandbox:
        inner = [sys.executable, "-m", "sandbox", "run", "--", "touch", "ran"]
        result = sandbox.exec(inner, env={"PYTHONPATH": str(REPOSITORY / "src"), "PYTHONDONTWRITEBYTECODE": "1"})
    assert result.exit_code == 125, result
    assert "could not create namespaces" in result.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("bwrap: No permissions to create new namespace, likely because the kernel does not allow…", EngineUnavailable),
        ("bwrap: setting up uid map: Permission denied", EngineUnavailable),
        ("bwrap: Creating new namespace failed: Operation not permitted", EngineUnavailable),
        ("bwrap: Can't find source path /x: No such file or directory", WallError),
        ("", WallError),
    ],
)
def test_bwraps_last_words_become_an_error_that_names_the_cause(said: str, kind: type[Exception]) -> None:
    problem = bubblewrap.explain(said)
    assert type(problem) is kind
    assert said in str(problem)


def test_apparmors_restriction_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "_read", lambda path: "1" if path == namespaces.APPARMOR else None)
    assert "kernel.apparmor_restrict_unprivileged_userns=0" in namespaces.why_no_namespaces()


def test_switched_off_namespaces_are_named_with_their_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "_read", lambda path: "0" if "max_user" in path else None)
    assert "sysctl user.max_user_namespaces" in namespaces.why_no_namespaces()


def test_a_kernel_without_the_system_calls_is_distinguished_from_a_broken_plan() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(theirs, {"t": "failed", "step": "mounts", "errno": errno.ENOSYS, "detail": b"/usr"})
        with pytest.raises(WallError, match=r"this kernel lacks a system call \(mounts \(/usr\)\); Linux 5\.12"):
            Guest(ours).set_up({})


@pytest.mark.skipif("NAMESPACES_OFF" not in os.environ, reason="`make kernels` switches them off")
def test_where_a_kernel_has_them_switched_off_the_error_names_the_switch(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=f"run `sysctl {os.environ['NAMESPACES_OFF']}=[1-9]"):
        Sandbox({"filesystem": {"root": str(tmp_path)}})
    walls = next(one for one in Bubblewrap().findings() if one.name == "isolation")
    assert (walls.ok, os.environ["NAMESPACES_OFF"] in walls.detail) == (False, True)


def test_inside_a_sandbox_the_error_says_so(tmp_path: Path) -> None:
    source = str(REPOSITORY / "src")
    with Sandbox({"filesystem": {"root": str(tmp_path), "allow_read": [sys.prefix, source]}}) as outer:
        done = outer.exec([sys.executable, "-m", "sandbox", "run", "true"], env={"PYTHONPATH": source})
    assert done.exit_code == 125
    assert "This is already a sandbox" in done.stderr
