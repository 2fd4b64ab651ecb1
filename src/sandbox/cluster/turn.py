"""A client's side of teams that take turns: waits until it may ask Ray, if there are teams at all."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any

from sandbox.cluster.teams import QUOTA, read
from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAMESPACE = "sandbox"
ACTOR = "teams"
AGAIN = 2.0  # seconds until it is looked again whether there are teams
ANSWER = 30.0  # seconds that the actor has to answer


class TurnTaking:
    """One client."""

    def __init__(self, ray: Any, team: str) -> None:
        self._ray, self._team = ray, team
        self._lock = Lock()
        self._actor: Any = None
        self._looked = float("-inf")

    def take(
        self,
        name: str,
        resources: Mapping[str, float],
        timeout: float | None,
        waiting: Callable[[int], object] | None,
    ) -> None:
        """Waits for our turn. Raises SandboxError when it does not come in time, NotFound for an unknown team."""
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while (actor := self._found()) is not None:
                patience = 1.0 if until is None else max(0.0, min(1.0, until - time.monotonic()))
                go, position, waits_for = self._asked(actor, name, resources, patience)
                if go:
                    return
                if until is not None and time.monotonic() >= until:
                    raise _too_late(timeout or 0.0, position, waits_for, self._team)
                if waiting is not None and position:
                    waiting(position)
        except BaseException:
            if self._actor is not None:
                self._actor.leave.remote(name)
            raise

    def needed(self) -> bool:
        """Whether there are teams, as far as known: then nobody has a place without their turn."""
        return self._found() is not None

    def status(self) -> dict[str, Any]:
        """What `TeamQueue.status` says; empty without teams. Raises SandboxError."""
        actor = self._found(now=True)
        if actor is None:
            return {"teams": [], "queue": []}
        found: dict[str, Any] = self._answer(actor.status.remote())
        return found

    def set_teams(self, teams: Mapping[str, Any], head: str) -> None:
        """Replaces the teams; none at all ends the actor. Raises ConfigError, SandboxError."""
        read(teams)
        actor = self._found(now=True)
        if not teams:
            if actor is not None:
                self._answer(actor.set.remote({}))
                self._ray.kill(actor)
                self._forget()
            return
        if actor is None:
            actor = self._start(head)
        self._answer(actor.set.remote(dict(teams)))
        with self._lock:
            self._actor = actor

    def _start(self, head: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from sandbox.cluster.turns import TeamQueue

        made = self._ray.remote(TeamQueue).options(
            name=ACTOR,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=10_000,
            scheduling_strategy=NodeAffinitySchedulingStrategy(head, soft=False),
        )
        return made.remote()

    def _found(self, now: bool = False) -> Any:
        """The actor; None without teams. Ray is asked only now and then, unless `now`."""
        with self._lock:
            if now or (self._actor is None and time.monotonic() > self._looked + AGAIN):
                self._looked = time.monotonic()
                try:
                    self._actor = self._ray.get_actor(ACTOR, namespace=NAMESPACE)
                except ValueError:
                    self._actor = None
            return self._actor

    def _forget(self) -> None:
        with self._lock:
            self._actor, self._looked = None, float("-inf")

    def _asked(self, actor: Any, name: str, resources: Mapping[str, float], patience: float) -> tuple[bool, int, str]:
        try:
            asked = actor.wait.remote(name, self._team, dict(resources), patience)
            found: tuple[bool, int, str] = self._ray.get(asked, timeout=patience + ANSWER)
            return found
        except self._ray.exceptions.RayTaskError as problem:
            raise _cause(problem) from problem
        except self._ray.exceptions.RayError:
            self._forget()  # it died: Ray starts it again, or the teams were removed
            time.sleep(min(0.5, patience))
            return False, 0, ""

    def _answer(self, asked: Any) -> Any:
        try:
            return self._ray.get(asked, timeout=ANSWER)
        except self._ray.exceptions.RayTaskError as problem:
            raise _cause(problem) from problem
        except self._ray.exceptions.RayError as problem:
            raise SandboxError("the cluster's queue does not answer: {problem}", problem=problem) from problem


def _cause(problem: Any) -> BaseException:
    cause: BaseException = problem.cause
    if isinstance(cause, SandboxError):
        return cause
    return SandboxError("the cluster's queue does not answer: {problem}", problem=cause)


def _too_late(timeout: float, position: int, waits_for: str, team: str) -> SandboxError:
    if waits_for == QUOTA:
        return SandboxError(
            "the team {team!r} has all it may have, and had to wait longer than {timeout:g} seconds; number {position} "
            "in the queue",
            team=team, timeout=timeout, position=position,
        )  # fmt: skip
    return SandboxError(
        "no node had room within {timeout:g} seconds; number {position} in the queue",
        timeout=timeout, position=position,
    )  # fmt: skip
