"""A sandbox owns a copy of its configuration: nothing done to one is seen in another, or by the caller."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from sandbox import AsyncSandbox, Config, Sandbox
from sandbox.building import take_providers
from sandbox.config.section import Section, owned
from sandbox.vfs import MemoryProvider

pytestmark = pytest.mark.walls


@pytest.fixture(autouse=True)
def _nothing_known(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that earlier runs were told to read are protected in every later one, by rules of the same lists."""
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path_factory.mktemp("home")))


def asked(tmp_path: Path) -> dict[str, Any]:
    """Something in every section, nested where sections nest."""
    (tmp_path / "data").mkdir(exist_ok=True)
    return {
        "filesystem": {"root": str(tmp_path), "deny_write": ["data"]},
        "environment": {"set": {"A": "1"}, "block": ["B"]},
        "network": {
            "allowed_hosts": ["a.example"],
            "http": {"deny": ["DELETE a.example/**"]},
            "secrets": {"KEY": {"value": "v4lue-of-key", "hosts": ["a.example"]}},
        },
        "limits": {"timeout": 60},
        "tools": {"disallowed": ["Write"]},
        "agents": {"hosts": ["b.example"]},
        "vfs": {"mounts": {"/mem": {"type": "memory", "size": "1m"}}},
    }


def disturb(value: Any) -> None:
    """Changes everything that can be changed in place."""
    inner = value.__dict__ if isinstance(value, Section) else value
    if isinstance(inner, dict):
        for one in list(inner.values()):
            disturb(one)
        if not isinstance(value, Section):
            inner.clear()
    elif isinstance(inner, list):
        inner.append("disturbed")


def test_what_happens_to_one_sandbox_does_not_reach_another_made_from_the_same_object(tmp_path: Path) -> None:
    config = Config.read(asked(tmp_path))
    before = copy.deepcopy(config)
    with Sandbox(config) as one, Sandbox(config) as other:
        one.update_network({"allowed_hosts": ["*"], "http": {"deny": []}, "secrets": {"KEY": None}})
        assert one.config.network.allowed_hosts == ["*"]
        disturb(one.config)
        assert other.config == before
    assert config == before


def test_max_does_not_rewrite_its_callers_object(tmp_path: Path) -> None:
    limits = {"memory": "512m", "cpus": None, "pids": None}
    config = Config.read({"mode": "max", "filesystem": {"root": str(tmp_path)}, "limits": limits})
    before = copy.deepcopy(config)
    try:
        with Sandbox(config) as sandbox:
            assert sandbox.config.filesystem.overlay
    except Exception as problem:  # noqa: BLE001 - without control groups `max` cannot be had; the object is the point
        assert "control group" in str(problem)
    assert config == before


@pytest.mark.parametrize("model", [False, True])
def test_changing_the_callers_object_afterwards_changes_no_sandbox(tmp_path: Path, model: bool) -> None:
    given: Any = Config.read(asked(tmp_path)) if model else asked(tmp_path)
    expected = Config.read(asked(tmp_path))
    with Sandbox(given) as sandbox:
        disturb(given)
        assert sandbox.config == expected
        assert sandbox.exec("echo $A").stdout == "1\n"


def test_sections_within_a_callers_mapping_are_copied_too(tmp_path: Path) -> None:
    sections = Config.read(asked(tmp_path))
    given = {"filesystem": sections.filesystem, "network": sections.network}
    with Sandbox(given) as sandbox:
        disturb(sections)
        assert sandbox.config.network.allowed_hosts == ["a.example"]
        rules = Config.read(asked(tmp_path)).network.http
        sandbox.update_network({"http": rules})
        disturb(rules)
        assert sandbox.config.network.http.deny == ["DELETE a.example/**"]


@pytest.mark.parametrize("model", [False, True])
def test_an_async_sandbox_takes_its_configuration_when_it_is_made_not_when_it_starts(
    tmp_path: Path, model: bool
) -> None:
    given: Any = Config.read(asked(tmp_path)) if model else asked(tmp_path)

    async def main() -> Config:
        waiting = AsyncSandbox(given)
        disturb(given)
        async with waiting as sandbox:
            return sandbox.sync.config

    assert asyncio.run(main()) == Config.read(asked(tmp_path))


def test_a_provider_stays_the_callers_own_object() -> None:
    provider = MemoryProvider()
    given = {"vfs": {"mounts": {"/mem": provider}}}
    assert owned(given)["vfs"]["mounts"]["/mem"] is provider
    assert take_providers(given)[1]["/mem"] is provider
