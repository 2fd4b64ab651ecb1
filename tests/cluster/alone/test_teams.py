"""Who may have how much of a cluster, and who comes first."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.cluster.placing import near, preferred
from sandbox.cluster.teams import QUOTA, ROOM, HeldPlace, TurnRequest, decide, plain, read, used
from sandbox.errors import ConfigError

ONE = {"CPU": 1.0}
PLENTY = [{"CPU": 100.0, "memory": 2.0**40}]


def asked(number: int, team: str, resources: dict[str, float] = ONE) -> TurnRequest:
    return TurnRequest(f"sandbox:{number:020d}:x:{team}", team, resources)


def held(count: int, team: str, resources: dict[str, float] = ONE) -> list[HeldPlace]:
    return [HeldPlace(f"held-{team}-{number}", team, resources) for number in range(count)]


def goes(answers: dict[str, Any], one: TurnRequest) -> bool:
    return bool(answers[one.name].go)


@pytest.mark.parametrize(
    "limit,resources",
    [({"sandboxes": 3}, ONE), ({"cpus": 3}, ONE), ({"memory": "3g"}, {"CPU": 0.1, "memory": 2.0**30})],
)
def test_a_team_has_no_more_than_it_was_given(limit: dict[str, Any], resources: dict[str, float]) -> None:
    teams = read({"a": limit, "b": {}})
    waiting = [asked(number, "a", resources) for number in range(3)]
    answers = decide(waiting, held(1, "a", resources), PLENTY, teams)
    assert [goes(answers, one) for one in waiting] == [True, True, False]
    assert answers[waiting[2].name][1:] == (1, QUOTA)
    other = asked(9, "b", resources)
    assert goes(decide([*waiting, other], held(3, "a", resources), PLENTY, teams), other)


def test_a_higher_priority_comes_first_whoever_asked_first() -> None:
    teams = read({"high": {"priority": 5}, "low": {"priority": -1}})
    early, late = asked(1, "low"), asked(2, "high")
    answers = decide([early, late], [], [{"CPU": 1.0}], teams)
    assert goes(answers, late) and answers[early.name] == (False, 1, ROOM)


def test_a_smaller_one_of_a_lower_priority_does_not_overtake() -> None:
    teams = read({"high": {"priority": 5}, "low": {}})
    large, small, equal = asked(1, "high", {"CPU": 4.0}), asked(2, "low"), asked(3, "high")
    answers = decide([large, small, equal], [], [{"CPU": 2.0}], teams)
    assert not goes(answers, large) and not goes(answers, small) and goes(answers, equal)
    assert [answers[one.name].position for one in (large, small)] == [1, 2]


def test_waiting_for_ones_own_quota_blocks_nobody_else() -> None:
    teams = read({"high": {"priority": 5, "sandboxes": 0}, "low": {}})
    full, other = asked(1, "high"), asked(2, "low")
    answers = decide([full, other], [], PLENTY, teams)
    assert not goes(answers, full) and goes(answers, other)


def test_everybody_else_shares_one_rule_and_not_one_quota() -> None:
    teams = read({"*": {"sandboxes": 1}})
    ann, bob, again = asked(1, "ann"), asked(2, "bob"), asked(3, "ann")
    answers = decide([ann, bob, again], [], PLENTY, teams)
    assert goes(answers, ann) and goes(answers, bob) and not goes(answers, again)
    assert used(held(2, "ann"), "ann") == {"sandboxes": 2.0, "cpus": 2.0, "memory": 0.0}


def test_teams_are_read_strictly_and_written_back_the_same() -> None:
    given = {"a": {"sandboxes": 3, "memory": "2g", "priority": 4}, "*": {"cpus": 1.5}}
    teams = read(given)
    assert teams["a"].memory == 2 * 2**30 and read(plain(teams)) == teams
    wrong: list[dict[str, Any]] = [
        {"a": {"sandboxs": 3}}, {"a": 3}, {"a": {"cpus": -1}}, {"a": {"cpus": True}}, {"a": {"memory": "much"}},
        {"a": {"priority": 1.5}}, {"a": {"priority": 10**6}}, {"a:b": {}}, {"": {}},
    ]  # fmt: skip
    for bad in wrong:
        with pytest.raises(ConfigError):
            read(bad)


FREE = {"small": {"CPU": 1.0}, "large": {"CPU": 8.0}, "full": {"CPU": 0.0}}


def test_packed_takes_the_fullest_machine_that_has_room_and_spread_the_emptiest() -> None:
    assert preferred(FREE, ONE, "pack") == "small"
    assert preferred(FREE, ONE, "spread") == "large"
    assert preferred(FREE, {"CPU": 2.0}, "pack") == "large"
    assert preferred(FREE, {"CPU": 9.0}, "pack") == ""
    assert preferred(FREE, ONE, None) == ""  # Ray's own choice


def test_a_machine_that_has_the_image_is_preferred_while_it_has_room() -> None:
    useful = near({"image": "debian", "engine": "qemu"})
    assert useful == ["template:qemu:debian", "image:debian"]
    cached = {"small": ["image:debian"], "full": ["template:qemu:debian"]}
    assert preferred(FREE, ONE, None, useful, cached) == "small"
    assert preferred(FREE, {"CPU": 2.0}, None, useful, cached) == ""
    assert preferred(FREE, {"CPU": 2.0}, "spread", useful, cached) == "large"
    assert preferred(FREE, ONE, None, useful, {**cached, "large": ["template:qemu:debian"]}) == "large"
    assert near({}) == []
