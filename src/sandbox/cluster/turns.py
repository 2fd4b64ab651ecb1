"""The actor that lets teams take turns. It exists once teams were set, on Ray's head; without it everybody just asks.

It holds no account of its own: who has what is read from Ray's placement groups, whose names say the team. So nothing
is lost when it dies, and the places of a program that died are free as soon as Ray frees them.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, Any

from sandbox.cluster.teams import HeldPlace, Team, TurnAnswer, TurnRequest, decide, in_order, plain, read, team_of, used
from sandbox.config.atomic_write import write_whole
from sandbox.config.home import home
from sandbox.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "sandbox"
LOOK = 0.05  # seconds between two looks, while anybody waits
SILENT = 5.0  # seconds after which somebody who stopped asking is forgotten
TAKING = 30.0  # seconds in which one who was told to go must have asked Ray
SETTLED = 1.0  # seconds until Ray's figures show a new group
FILE = "cluster-teams.json"


def group_name(team: str) -> str:
    """The name of a placement group. Names sort by the time of asking."""
    return f"{PREFIX}:{time.time_ns():020d}:{os.urandom(4).hex()}:{team}"


def team_in(name: str) -> str:
    """The team in such a name."""
    return (name.split(":", 3) + [""] * 3)[3]


class TeamQueue:
    """The actor. Its methods are called by way of Ray, many at a time."""

    def __init__(self) -> None:
        self._file = os.path.join(home(), FILE)
        self._teams = self._kept()
        self._waiting: dict[str, tuple[TurnRequest, float]] = {}
        self._told: dict[str, tuple[HeldPlace, float]] = {}
        self._answers: dict[str, TurnAnswer] = {}
        self._looking: asyncio.Task[None] | None = None
        self._looked = asyncio.Condition()

    async def set(self, given: dict[str, Any]) -> None:
        """Replaces the teams. Raises ConfigError."""
        self._teams = read(given)
        os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
        write_whole(self._file, json.dumps(plain(self._teams)))

    async def wait(self, name: str, team: str, resources: dict[str, float], patience: float) -> tuple[bool, int, str]:
        """Waits for the turn of a request, for at most `patience` seconds; call it again and again.

        Returns whether to go, or the position and what it waits for. Raises NotFound for a team without rules.
        """
        if team_of(self._teams, team) is None:
            raise NotFound("the cluster has no team {team!r}; see `sandbox cluster teams`", team=team)
        until = time.monotonic() + patience
        while True:
            self._waiting[name] = TurnRequest(name, team, resources), time.monotonic()
            answer = await self._next_answer(name)
            if answer.go or time.monotonic() >= until:
                return answer.go, answer.position, answer.waits_for

    async def leave(self, name: str) -> None:
        """Forgets a request that nobody makes any more."""
        self._waiting.pop(name, None)
        self._told.pop(name, None)

    async def status(self) -> dict[str, Any]:
        """The teams with what they may have, have and wait for; and the queue."""
        groups = await asyncio.to_thread(_groups)
        names = {*self._teams, *(one.team for one in groups)}
        queue = in_order([one for one, _ in self._waiting.values()], self._teams)
        return {
            "teams": [self._about(name, groups, queue) for name in sorted(names)],
            "queue": [self._queued(number, one) for number, one in enumerate(queue, 1)],
        }

    def _about(self, name: str, groups: list[HeldPlace], queue: list[TurnRequest]) -> dict[str, Any]:
        team = team_of(self._teams, name) or Team()
        return {
            "team": name, "priority": team.priority, "used": used(groups, name),
            "most": {key: getattr(team, key) for key in ("sandboxes", "cpus", "memory")},
            "waiting": sum(1 for one in queue if one.team == name),
        }  # fmt: skip

    def _queued(self, number: int, one: TurnRequest) -> dict[str, Any]:
        answer = self._answers.get(one.name, TurnAnswer(False, number))
        return {
            "position": number, "team": one.team, "priority": (team_of(self._teams, one.team) or Team()).priority,
            "waits_for": answer.waits_for, "resources": dict(one.resources),
        }  # fmt: skip

    # -- looking

    async def _next_answer(self, name: str) -> TurnAnswer:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        async with self._looked:
            await self._looked.wait()
        return TurnAnswer(True) if name in self._told else self._answers.get(name, TurnAnswer(False))

    async def _look(self) -> None:
        """Decides, again and again while anybody waits."""
        while self._waiting:
            groups, free = await asyncio.to_thread(lambda: (_groups(), _free()))
            async with self._looked:
                self._decide(groups, free)
                self._looked.notify_all()
            await asyncio.sleep(LOOK)

    def _decide(self, groups: list[HeldPlace], free: list[dict[str, float]]) -> None:
        now = time.monotonic()
        self._waiting = {name: one for name, one in self._waiting.items() if now - one[1] < SILENT}
        there = {one.name for one in groups}
        for name, (_, since) in list(self._told.items()):
            if now - since > (SETTLED if name in there else TAKING):
                del self._told[name]
        going = [one for name, (one, _) in self._told.items() if name not in there]
        for one, _ in self._told.values():  # what Ray's figures may not show yet
            _take(free, one.resources)
        self._answers = decide([one for one, _ in self._waiting.values()], [*groups, *going], free, self._teams)
        for name, answer in self._answers.items():
            if answer.go:
                asked, _ = self._waiting.pop(name)
                self._told[name] = HeldPlace(*asked), now

    def _kept(self) -> dict[str, Team]:
        try:
            with open(self._file, encoding="utf-8") as file:
                return read(json.load(file))
        except FileNotFoundError:
            return {}


def _take(free: list[dict[str, float]], wanted: Mapping[str, float]) -> None:
    for one in free:
        if all(one.get(name, 0.0) >= amount for name, amount in wanted.items()):
            for name, amount in wanted.items():
                one[name] -= amount
            return


def _groups() -> list[HeldPlace]:
    """Who has a place, or waits for one at Ray."""
    from ray.util.placement_group import placement_group_table

    return [
        HeldPlace(one["name"], team_in(one["name"]), dict(one["bundles"].get(0, {})))
        for one in placement_group_table().values()
        if one["state"] != "REMOVED" and one["name"].startswith(f"{PREFIX}:")
    ]


def _free() -> list[dict[str, float]]:
    """What each machine has left."""
    from ray._private.state import available_resources_per_node

    return [dict(one) for one in available_resources_per_node().values()]
