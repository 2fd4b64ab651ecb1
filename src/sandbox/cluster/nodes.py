"""All that we ask Ray for: which machines there are, a reservation on one of them, and its agent.

A reservation is a placement group with one bundle. Ray queues those without room, releases them when the program that
asked is gone, and knows which machines are alive: none of that is done here.
"""

from __future__ import annotations

import json
import os
import time
from threading import Lock
from typing import TYPE_CHECKING, Any

from sandbox.cluster.places import KeptPlaces, Reservation
from sandbox.cluster.turn import NAMESPACE, TurnTaking
from sandbox.cluster.turns import PREFIX, group_name
from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WAITING = "PENDING"
CACHED = "sandbox-cached:"  # before a node's id, among the keys of Ray's store
HEAD = "node:__internal_head__"  # a resource that Ray gives to one machine


def ray_module() -> Any:
    """Ray, imported at the first use. Raises SandboxError."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as problem:
        raise SandboxError("a cluster needs Ray; install it with: pip install 'agent-sandbox[ray]'") from problem
    return ray


class RayNodes:
    """A connection to Ray."""

    def __init__(self, address: str, pool: int, team: str = "") -> None:
        """Raises SandboxError when it cannot be reached."""
        self.team = team
        self._ray = ray_module()
        self._pool = pool
        self._agents: dict[str, Any] = {}
        self._lock = Lock()
        self.closed = False
        self._ours = not self._ray.is_initialized()
        if self._ours:
            try:
                self._ray.init(address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, ValueError, RuntimeError) as problem:
                raise SandboxError(
                    "the cluster {address} cannot be reached: {problem}", address=address, problem=problem
                ) from problem

        self._turn = TurnTaking(self._ray, team)
        self._kept = KeptPlaces()

    def alive(self) -> list[dict[str, Any]]:
        """The machines, as Ray describes them."""
        return [one for one in self._ray.nodes() if one["Alive"]]

    def reserve(
        self,
        resources: Mapping[str, float],
        timeout: float | None,
        waiting: Callable[[int], object] | None,
        without: Sequence[str] = (),
        target: str = "",
    ) -> Reservation:
        """Reserves these resources, and waits until they are free. `waiting` is called with the position in the queue.
        `without` names machines to avoid, `target` the one to prefer.

        Raises SandboxError when they are not free in time, and when Ray does not answer.
        """
        try:
            return self._reserve(resources, timeout, waiting, without, target)
        except self._ray.exceptions.RayError as problem:
            raise SandboxError("Ray does not answer: {problem}", problem=type(problem).__name__) from problem

    def _reserve(
        self,
        resources: Mapping[str, float],
        timeout: float | None,
        waiting: Callable[[int], object] | None,
        without: Sequence[str],
        target: str,
    ) -> Reservation:
        from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

        if target or self._turn.needed():
            self._kept.empty()
        elif kept := self._kept.take(resources, without):
            return kept
        name = group_name(self.team)
        until = None if timeout is None else time.monotonic() + timeout
        self._turn.take(name, resources, timeout, waiting)
        group = placement_group([dict(resources)], name=name, **_elsewhere(without), **_rather(target))
        try:
            while not group.wait(_next_look(until)):
                if until is not None and time.monotonic() >= until:
                    raise SandboxError(
                        "no node had room within {timeout:g} seconds; number {position} in the queue",
                        timeout=timeout, position=position(name),
                    )  # fmt: skip
                if waiting is not None:
                    waiting(position(name))
            return Reservation(group, placement_group_table(group)["bundles_to_node_id"][0], resources)
        except BaseException:
            remove_placement_group(group)
            raise

    def give_back(self, place: Reservation) -> None:
        """For the place of a sandbox that was closed in good order: the next one of this program may have it."""
        if self._turn.needed():
            place.release()
        else:
            self._kept.keep(place)

    def forget_places(self, node: str) -> None:
        """For a machine on which a sandbox was lost: it may be gone."""
        self._kept.forget(node)

    def free(self, without: Sequence[str] = ()) -> dict[str, dict[str, float]]:
        """What each machine has left, as far as Ray says so."""
        from ray._private.state import available_resources_per_node

        try:
            found: dict[str, dict[str, float]] = available_resources_per_node()
        except (self._ray.exceptions.RayError, RuntimeError, AttributeError):
            return {}
        return {node: left for node, left in found.items() if node not in without}

    def publish(self, node: str, cached: Sequence[str]) -> None:
        """Lets everybody know which images and templates a machine has."""
        from ray.experimental.internal_kv import _internal_kv_put

        _internal_kv_put(f"{CACHED}{node}", json.dumps(list(cached)), overwrite=True)

    def cached(self) -> dict[str, list[str]]:
        """What each machine has published. Whatever else is there is ignored."""
        from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_list

        found: dict[str, list[str]] = {}
        for key in _internal_kv_list(CACHED):
            try:
                found[key.decode()[len(CACHED) :]] = [str(one) for one in json.loads(_internal_kv_get(key) or "[]")]
            except (ValueError, TypeError):
                continue
        return found

    def agent(self, node: str) -> Any:
        """The agent of a machine; starts one if there is none."""
        with self._lock:
            if node not in self._agents:
                self._agents[node] = self._start(node)
            return self._agents[node]

    def keeper(self, alive: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The machine that keeps the records of all: Ray's head."""
        known = self.alive() if alive is None else alive
        return next((str(one["NodeID"]) for one in known if HEAD in one["Resources"]), "")

    def has_agent(self, node: str) -> bool:
        """Whether an agent was started there, by any client."""
        try:
            self._ray.get_actor(f"agent-{node}", namespace=NAMESPACE)
        except ValueError:
            return False
        return True

    def forget(self, node: str) -> None:
        """Forgets an agent that did not answer: the next call looks for it again."""
        with self._lock:
            self._agents.pop(node, None)

    def ask(self, node: str, method: str, *given: Any, timeout: float = 60.0) -> Any:
        """Calls a method of a machine's agent, and returns its answer. Raises SandboxError."""
        try:
            return self._ray.get(getattr(self.agent(node), method).remote(*given), timeout=timeout)
        except self._ray.exceptions.RayTaskError as problem:
            cause = problem.cause
            raise (
                cause
                if isinstance(cause, SandboxError)
                else SandboxError("the agent of the node {node} failed: {problem}", node=node[:12], problem=cause)
            ) from problem
        except self._ray.exceptions.RayError as problem:
            self.forget(node)
            raise SandboxError(
                "the agent of the node {node} cannot be reached: {problem}",
                node=node[:12],
                problem=type(problem).__name__,
            ) from problem

    def tell(self, node: str, method: str, *given: Any) -> None:
        """The same without waiting for an answer. An agent that is not known, or known to be gone, is not told."""
        with self._lock:
            agent = self._agents.get(node)
        if agent is not None and not self.closed:
            getattr(agent, method).remote(*given)

    def _start(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from sandbox.cluster.agent import THREADS, Agent

        alive = self.alive()
        address = next((one["NodeManagerAddress"] for one in alive if one["NodeID"] == node), None)
        if address is None:
            raise SandboxError("the node {node} no longer exists", node=node[:12])
        keeper = self.keeper(alive)
        if keeper not in ("", node) and keeper not in self._agents:
            self._agents[keeper] = self._start(keeper)
        made = self._ray.remote(Agent).options(
            name=f"agent-{node}",
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=THREADS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        return made.remote(node, address, self._pool, keeper, RayNodes)

    def set_teams(self, teams: Mapping[str, Any]) -> None:
        """Sets what each team may have; none: everybody just asks. Raises ConfigError, SandboxError."""
        self._turn.set_teams(teams, self.keeper())

    def teams(self) -> dict[str, Any]:
        """The teams and the queue, as `TeamQueue.status` returns them. Raises SandboxError."""
        return self._turn.status()

    def waiting(self) -> int:
        """How many requests wait: at Ray, and for their turn. Raises SandboxError."""
        return queue_length() + len(self._turn.status()["queue"])

    def close(self) -> None:
        """Leaves the cluster, if we joined it. Agents go on."""
        self.closed = True
        self._kept.close()
        if self._ours and self._ray.is_initialized():
            self._ray.shutdown()


def _elsewhere(without: Sequence[str]) -> dict[str, Any]:
    return {"bundle_label_selector": [{"ray.io/node-id": f"!in({','.join(without)})"}]} if without else {}


def _rather(target: str) -> dict[str, Any]:
    """A group of one bundle is packed anyway; with this strategy Ray knows a preferred machine."""
    return {"strategy": "STRICT_PACK", "_soft_target_node_id": target} if target else {}


def _next_look(until: float | None) -> float:
    return 1.0 if until is None else max(0.001, min(1.0, until - time.monotonic()))


def position(name: str) -> int:
    """The position in the queue, from 1, by the time of asking. Ray may still serve a smaller request first."""
    from ray.util.placement_group import placement_group_table

    names = [one["name"] for one in placement_group_table().values() if one["state"] == WAITING]
    return sum(1 for one in names if one.startswith(f"{PREFIX}:") and one < name) + 1


def queue_length() -> int:
    """How many requests wait."""
    return position(f"{PREFIX}:~") - 1
