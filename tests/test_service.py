"""What the command line, JSON-RPC and other servers share: creating, finding and ending sandboxes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.audit.reading import entries
from sandbox.client import Client
from sandbox.config.layers import Widening
from sandbox.errors import ConfigError, NotFound, SandboxClosed
from sandbox.registry.registry import find
from sandbox.sandbox import Sandbox
from sandbox.sandboxes import Sandboxes
from sandbox.service import configuration, create, merged
from tests.sandboxes import home

__all__ = ["home"]

pytestmark = pytest.mark.walls


@pytest.fixture
def ignored() -> list[Widening]:
    return []


@pytest.fixture
def sandboxes(home: Path, ignored: list[Widening]) -> Iterator[Sandboxes]:
    found = Sandboxes(flags={"environment": {"set": {"FROM": "flags", "ONLY": "flags"}}}, tell=ignored.append)
    yield found
    found.close()


def test_a_clients_parameters_count_above_the_servers_flags(sandboxes: Sandboxes) -> None:
    sandbox = sandboxes.create({"env": {"FROM": "client"}})
    assert sandbox.exec("echo $FROM $ONLY").stdout == "client flags\n"


def test_two_sandboxes_live_beside_each_other_and_end_together(sandboxes: Sandboxes, home: Path) -> None:
    first, second = sandboxes.create({}), sandboxes.create({})
    first.write_file("/tmp/mine", "x")
    with pytest.raises(FileNotFoundError):
        second.read_file("/tmp/mine")
    assert {entry.id for entry in sandboxes.list() if entry.running} == {first.id, second.id}
    sandboxes.close()
    for sandbox in (first, second):
        with pytest.raises(SandboxClosed):
            sandbox.exec("true")
        assert find(str(home), sandbox.id).status == "stopped"


def test_an_own_sandbox_is_found_by_the_beginning_of_its_id(sandboxes: Sandboxes) -> None:
    sandbox = sandboxes.create({})
    assert sandboxes.get(sandbox.id) is sandbox
    assert sandboxes.get(sandbox.id[3:8]) is sandbox


def test_another_programs_sandbox_is_attached_to(sandboxes: Sandboxes) -> None:
    with Sandbox() as other:
        found = sandboxes.get(other.id)
        assert isinstance(found, Client)
        with found:
            assert found.exec("echo in").stdout == "in\n"
        assert other.exec("true").ok, "leaving does not end it"


def test_ending_one_leaves_the_others(sandboxes: Sandboxes) -> None:
    first, second = sandboxes.create({}), sandboxes.create({})
    sandboxes.end(first.id)
    with pytest.raises(SandboxClosed):
        first.exec("true")
    assert second.exec("true").ok


def test_what_does_not_exist_is_not_found(sandboxes: Sandboxes) -> None:
    for act in (sandboxes.get, sandboxes.end):
        with pytest.raises(NotFound):
            act("vm-00000000")


def test_what_a_project_asked_for_in_vain_is_shown_and_recorded(
    sandboxes: Sandboxes, ignored: list[Widening], home: Path
) -> None:
    Path(".sandbox").mkdir()
    Path(".sandbox/config.yaml").write_text("network:\n  allowed_hosts: [evil.example]\n", encoding="utf-8")
    sandbox = sandboxes.create({})
    assert [one.path for one in ignored] == ["network.allowed_hosts"]
    written = list(entries(sandbox.record.directory))
    assert any("project-only-tightens" in str(entry) for entry in written)


def test_a_mistake_in_the_configuration_creates_nothing(sandboxes: Sandboxes) -> None:
    with pytest.raises(ConfigError):
        sandboxes.create({"netwrok": {}})
    assert sandboxes.list() == []


def test_a_listener_that_raises_leaves_no_sandbox(home: Path) -> None:
    Path(".sandbox").mkdir()
    Path(".sandbox/config.yaml").write_text("network:\n  allowed_hosts: [evil.example]\n", encoding="utf-8")

    def tell(_: Widening) -> None:
        raise RuntimeError("no screen")

    with pytest.raises(RuntimeError):
        create(configuration({}), tell=tell)
    assert [entry.status for entry in Sandboxes(tell=tell).list()] == ["stopped"]


def test_layers_merge_sections_and_replace_lists() -> None:
    below = {"network": {"allowed_hosts": ["a"], "intercept": True}, "mode": "light"}
    above = {"network": {"allowed_hosts": ["b"]}, "mode": "max"}
    assert merged(below, above) == {"network": {"allowed_hosts": ["b"], "intercept": True}, "mode": "max"}
