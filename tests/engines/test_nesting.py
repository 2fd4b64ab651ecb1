"""Walls inside a container: which of its settings forbids them is named, with what would allow them."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.engines import namespaces, nesting

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
SECCOMP = "`securityContext.seccompProfile` of type `Localhost`"
PROC = "`securityContext.procMount: Unmasked`"


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A container as the runtimes make them; a test changes what it is about."""
    monkeypatch.setenv("container", "oci")
    monkeypatch.setattr(namespaces, "_read", lambda path: None)
    monkeypatch.setattr(nesting, "filtered", lambda: True)
    monkeypatch.setattr(nesting, "confined", lambda: "")
    monkeypatch.setattr(nesting, "masked", list)
    return monkeypatch


def says(container: pytest.MonkeyPatch, **steps: int) -> str:
    container.setattr(nesting, "tried", lambda: steps)
    return str(namespaces.why_no_namespaces())


@pytest.mark.parametrize("step", ["user", "namespaces", "hostname", "mount"])
def test_a_filter_that_forbids_a_step_is_named_with_the_field_of_kubernetes(
    container: pytest.MonkeyPatch, step: str
) -> None:
    before = dict.fromkeys(nesting.STEPS[: nesting.STEPS.index(step)], 0)
    told = says(container, **before, **{step: errno.EPERM})
    assert SECCOMP in told
    assert PROC not in told


def test_a_masked_proc_is_named_with_the_field_of_kubernetes(container: pytest.MonkeyPatch) -> None:
    container.setattr(nesting, "masked", lambda: ["/proc/acpi", "/proc/kcore"])
    told = says(container, user=0, map=0, namespaces=0, hostname=0, mount=0, proc=errno.EPERM)
    assert PROC in told and "`hostUsers: false`" in told and "/proc/acpi, /proc/kcore" in told
    assert SECCOMP not in told


def test_a_masked_proc_is_named_also_when_something_else_fails_first(container: pytest.MonkeyPatch) -> None:
    container.setattr(nesting, "masked", lambda: ["/proc/acpi"])
    told = says(container, user=errno.EPERM)
    assert SECCOMP in told and PROC in told


def test_apparmor_is_named_when_it_is_what_refuses(container: pytest.MonkeyPatch) -> None:
    container.setattr(nesting, "confined", lambda: "cri-containerd.apparmor.d (enforce)")
    told = says(container, user=0, map=0, namespaces=0, hostname=0, mount=errno.EACCES)
    assert "`securityContext.appArmorProfile.type: Unconfined`" in told and "cri-containerd.apparmor.d" in told


def test_a_node_without_user_namespaces_is_not_blamed_on_the_pod(container: pytest.MonkeyPatch) -> None:
    assert "on the node" in says(container, user=errno.ENOSPC)


def test_without_a_filter_the_kernels_own_refusal_is_reported(container: pytest.MonkeyPatch) -> None:
    container.setattr(nesting, "filtered", lambda: False)
    assert "`hostUsers: false`" in says(container, user=errno.EPERM)


@pytest.mark.walls
def test_the_first_step_that_fails_is_found_by_trying(tmp_path: Path) -> None:
    # A place where a filter refuses new user namespaces is at hand: the inside of a sandbox.
    look = "from sandbox.engines import nesting as n; print(n.tried().get('user'), n.filtered())"
    with Sandbox({"filesystem": {"root": str(tmp_path), "allow_read": [sys.prefix, SOURCE]}}) as sandbox:
        done = sandbox.exec([sys.executable, "-c", look], env={"PYTHONPATH": SOURCE})
    number, filtered = done.stdout.split()
    assert int(number) != 0 and filtered == "True", done


@pytest.mark.walls
def test_where_walls_can_be_built_every_step_succeeds_and_nothing_stays() -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    assert nesting.tried() == dict.fromkeys(nesting.STEPS, 0)
    assert nesting.reasons() == []
    assert Path("/proc/self/mountinfo").read_text() == mounts
