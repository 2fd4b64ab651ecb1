"""Who may have how much of a cluster, and who comes first: pure rules, asked by `turns.py`.

    research: {sandboxes: 100, cpus: 32, memory: 64g, priority: 10}
    "*": {sandboxes: 10}                                              # everybody else

A team's sandboxes together have at most what it was given. Of those that wait for room, those of a higher priority come
first; among equals, who asked first, unless only a smaller one has room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox.config.units import size
from sandbox.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OTHERS = "*"
LIMITS = ("sandboxes", "cpus", "memory")
ROOM, QUOTA = "room", "quota"  # what somebody waits for


class Team(NamedTuple):
    """What one team may have. None: as much as there is."""

    sandboxes: float | None = None
    cpus: float | None = None
    memory: float | None = None
    priority: int = 0

    def allows(self, used: Mapping[str, float]) -> bool:
        return all(limit is None or used[name] <= limit for name, limit in zip(LIMITS, self[:3], strict=True))


class TurnRequest(NamedTuple):
    """One who waits. `name` is that of the placement group to be, and sorts by the time of asking."""

    name: str
    team: str
    resources: Mapping[str, float]


class HeldPlace(NamedTuple):
    """Somebody who has a place, or was told to take one."""

    name: str
    team: str
    resources: Mapping[str, float]


class TurnAnswer(NamedTuple):
    """Whether to `go`, or else the position in the queue and what the wait is for."""

    go: bool
    position: int = 0
    waits_for: str = ""


def read(given: Mapping[str, Any]) -> dict[str, Team]:
    """The teams of a file. Raises ConfigError."""
    teams: dict[str, Team] = {}
    for name, one in given.items():
        path = f"teams.{name}"
        if not isinstance(name, str) or not name or len(name) > 64 or ":" in name or not name.isprintable():
            raise ConfigError("a team's name may have at most 64 printable characters, and no colon", path="teams")
        if not isinstance(one, dict):
            raise ConfigError("must be a mapping", path=path)
        if unknown := sorted(set(one) - {*LIMITS, "priority"}):
            raise ConfigError("unknown key {key!r}", key=unknown[0], path=path)
        limits = {key: _number(one[key], f"{path}.{key}") for key in LIMITS if one.get(key) is not None}
        priority = one.get("priority", 0)
        if type(priority) is not int or not -1000 <= priority <= 1000:
            raise ConfigError("must be a number from -1000 to 1000", path=f"{path}.priority")
        teams[name] = Team(**limits, priority=priority)
    return teams


def _number(value: Any, path: str) -> float:
    if path.endswith(".memory"):
        try:
            value = size(value)
        except ValueError as problem:
            raise ConfigError(*problem.args, path=path) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ConfigError("must be a number, 0 or more", path=path)
    return float(value)


def plain(teams: Mapping[str, Team]) -> dict[str, dict[str, Any]]:
    """The same as plain data, which `read` reads."""
    return {
        name: {key: value for key, value in one._asdict().items() if value is not None} for name, one in teams.items()
    }


def team_of(teams: Mapping[str, Team], name: str) -> Team | None:
    """The rules for a team; None if the cluster has none for it."""
    return teams.get(name, teams.get(OTHERS))


def used(groups: Iterable[HeldPlace | TurnRequest], team: str) -> dict[str, float]:
    """What a team has."""
    own = [one.resources for one in groups if one.team == team]
    return {
        "sandboxes": float(len(own)),
        "cpus": sum(one.get("CPU", 0.0) for one in own),
        "memory": sum(one.get("memory", 0.0) for one in own),
    }


def in_order(waiting: Iterable[TurnRequest], teams: Mapping[str, Team]) -> list[TurnRequest]:
    """The queue: a higher priority first, then who asked first."""
    return sorted(waiting, key=lambda one: (-(team_of(teams, one.team) or Team()).priority, one.name))


def decide(
    waiting: Sequence[TurnRequest],
    groups: Sequence[HeldPlace],
    free: Sequence[Mapping[str, float]],
    teams: Mapping[str, Team],
) -> dict[str, TurnAnswer]:
    """The answer for everybody who waits. `groups` have a place or were told to take one; `free` is what each machine
    has left, after all of them."""
    left = [dict(one) for one in free]
    taken = list(groups)
    answers: dict[str, TurnAnswer] = {}
    blocked: int | None = None  # the priority of the first that waits for room
    position = 0
    for one in in_order(waiting, teams):
        team = team_of(teams, one.team) or Team()
        may = team.allows(used([*taken, one], one.team))
        if may and blocked in (None, team.priority) and _place(left, one.resources):
            taken.append(HeldPlace(*one))
            answers[one.name] = TurnAnswer(True)
            continue
        position += 1
        if may and blocked is None:
            blocked = team.priority
        answers[one.name] = TurnAnswer(False, position, ROOM if may else QUOTA)
    return answers


def _place(left: list[dict[str, float]], wanted: Mapping[str, float]) -> bool:
    """Takes these resources from the first machine that has them."""
    for one in left:
        if all(one.get(name, 0.0) + 1e-9 >= amount for name, amount in wanted.items()):
            for name, amount in wanted.items():
                one[name] = one.get(name, 0.0) - amount
            return True
    return False
