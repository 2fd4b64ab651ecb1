"""docs/agents.md says what the profiles say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.policy.hosts import HostSet
from sandbox.profiles.find import PACKAGED, load
from sandbox.profiles.profile import Profile, Seed
from tests.agents.page import PAGE, page
from tests.agents.real import AGENTS

SHIPPED = sorted(one.stem for one in Path(PACKAGED).glob("*.json"))


def test_the_page_is_what_the_profiles_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "run: python -m tests.agents.page"


def test_every_key_of_a_profile_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [key for key in (*Profile.fields, *Seed.fields) if f"`{key}`" not in text] == []


def test_those_that_say_so_are_the_ones_that_are_tried() -> None:
    tested = {name: load(name).tested for name in SHIPPED}
    assert {one.name for one in AGENTS} == {name for name, text in tested.items() if text and "only" not in text}


def test_these_ship() -> None:
    wanted = "claude codex gemini opencode aider copilot cursor-agent droid goose kiro qwen amp shell"
    assert sorted(wanted.split()) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_is_sound(name: str) -> None:
    one = load(name)
    HostSet(one.hosts)
    assert "*" not in one.hosts
    assert all(one.hosts.values()), "a host without a reason"
    assert one.description
    assert one.install
    assert one.keep
    for path in (*one.seed, *([one.instructions] if one.instructions else [])):
        assert any(keep == "." or path.startswith(f"{keep}/") for keep in one.keep), f"{path} is not kept"
