"""The simulated cluster.

    arrivals → control plane (places) → a node with room, or a line → start → commands → close → gone

A node is a server's interpreter (one request at a time), cores, and places for sandboxes. Everything is drawn from one
seeded generator: the same seed gives the same run.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from bench.scale.costs import Costs, Step
from bench.scale.queues import Servers, SharedCores

Steps = Generator[Any, Any, None]
TOLD = 5.0  # seconds until the loss of a node is noticed
ATTEMPTS = 3
DRAWS = 8  # of two nodes each, before the cluster counts as full


@dataclass(frozen=True)
class Shape:
    """A cluster and what is asked of it."""

    nodes: int
    cores: int = 32  # of each node
    servers: int = 1  # `sandbox serve` processes on each node: each has an interpreter of its own
    most: int = 200  # sandboxes on a node at a time
    schedulers: int = 1  # processes of the control plane that place sandboxes
    place: float = 0.001  # seconds of one of them for each placement
    warm: int = 0  # sandboxes that a node keeps ready; handed out for the price of a command
    commands: int = 3  # of each sandbox
    life: float = 120.0  # mean seconds from start to close, commands not counted
    memory_mb: float = 64.0  # what a tenant uses
    entries: int = 20  # that a sandbox writes into the record
    shippers: int = 16  # which take the nodes' records in …
    entry: float = 5e-5  # … at so many seconds each
    one_machine: bool = False  # all nodes share the cores of one: how a small cluster is tried out
    others: float = 0.0  # programs that use that machine, too


@dataclass
class Counts:
    arrived: int = 0
    done: int = 0
    lost: int = 0  # a node went, and the attempts are used up
    again: int = 0  # started once more after a loss
    alive: int = 0
    waiting: int = 0
    warm: int = 0  # handed out of a pool
    most_alive: int = 0
    most_waiting: int = 0
    delays: list[float] = field(default_factory=list)  # from asking to a sandbox that runs

    @property
    def inside(self) -> int:
        return self.arrived - self.done - self.lost


class Node:
    """One machine with its servers."""

    def __init__(self, shape: Shape, cores: Servers) -> None:
        self.cores = cores
        self.interpreters = Servers(shape.servers)
        self.room = shape.most
        self.warm = shape.warm
        self.up = True
        self.running: set[int] = set()  # jobs
        self.starts = 0


class Cluster:
    """A run. `arrive` and the disturbances are processes of `env`; `counts` and the queues tell what happened."""

    def __init__(self, shape: Shape, costs: Costs, seed: int = 1) -> None:
        self.shape, self.costs = shape, costs
        self.env = simpy.Environment()
        self.random = random.Random(seed)
        self.counts = Counts()
        self.control = Servers(shape.schedulers)
        self.records = Servers(shape.shippers)
        self.nodes = [Node(shape, Servers(shape.cores)) for _ in range(shape.nodes)]
        self._shared = SharedCores(self.env, shape.cores, shape.others)
        self._turns = (
            {node: simpy.Resource(self.env, shape.servers) for node in self.nodes} if shape.one_machine else {}
        )
        self._line: deque[simpy.Event] = deque()
        self._jobs = 0
        self._attempts: dict[int, tuple[int, float]] = {}  # of each job that runs, and since when it is asked for

    # -- what is asked

    def arrive(self, rate: float, seconds: float) -> Steps:
        """Poisson arrivals for so long."""
        until = self.env.now + seconds
        while True:
            yield self.env.timeout(self.random.expovariate(rate))
            if self.env.now > until:
                return
            self.ask()

    def ask(self, attempt: int = 1, since: float | None = None) -> None:
        """One sandbox is asked for."""
        self._jobs += 1
        if attempt == 1:
            self.counts.arrived += 1
        self.env.process(self._job(self._jobs, attempt, self.env.now if since is None else since))

    # -- what happens to it

    def _job(self, job: int, attempt: int, since: float) -> Steps:
        yield self._until(self.control.take(self.env.now, self.shape.place))
        node = self._find()
        while node is None:
            self.counts.waiting += 1
            self.counts.most_waiting = max(self.counts.most_waiting, self.counts.waiting)
            free = self.env.event()
            self._line.append(free)
            node = yield free  # whoever leaves hands over the place itself
            self.counts.waiting -= 1
        self._enter(job, node, attempt, since)
        yield from self._start(node)
        if job not in node.running:
            return  # the node went meanwhile, and somebody else goes on with it
        self.counts.delays.append(self.env.now - since)
        for _ in range(self.shape.commands):
            yield self.env.timeout(self.random.expovariate(self.shape.commands / self.shape.life))
            if job not in node.running:
                return
            yield from self.work(node, self.costs.exec)
        yield from self.work(node, self.costs.close)
        if job in node.running:
            self._leave(job, node)

    def _enter(self, job: int, node: Node, attempt: int, since: float) -> None:
        node.running.add(job)
        self._attempts[job] = (attempt, since)
        self.counts.alive += 1
        self.counts.most_alive = max(self.counts.most_alive, self.counts.alive)

    def _leave(self, job: int, node: Node) -> None:
        node.running.discard(job)
        self._attempts.pop(job)
        self.counts.alive -= 1
        self.counts.done += 1
        self.records.take(self.env.now, self.shape.entries * self.shape.entry)
        self._free(node)

    def _start(self, node: Node) -> Steps:
        node.starts += 1
        if node.warm > 0:
            node.warm -= 1
            self.counts.warm += 1
            self.env.process(self._refill(node))
            yield from self.work(node, self.costs.exec)
        else:
            yield from self.work(node, self.costs.start)

    def _refill(self, node: Node) -> Steps:
        yield from self.work(node, self.costs.start)
        node.warm += 1

    def work(self, node: Node, step: Step) -> Steps:
        """A request. It ends when the interpreter had its turn with it and the cores did all of its work."""
        if self.shape.one_machine:
            yield from self._work_shared(node, step)
            return
        interpreted = node.interpreters.take(self.env.now, step.server) + step.others
        yield self._until(max(interpreted, node.cores.take(self.env.now, step.cpu)) + step.idle)

    def _work_shared(self, node: Node, step: Step) -> Steps:
        """The same where all nodes, those who ask and other programs share the cores of one machine."""
        yield self._shared.work(step.client)
        with self._turns[node].request() as turn:
            yield turn
            yield self._shared.work(step.server)
        yield self._shared.work(step.others)
        yield self.env.timeout(step.idle)

    def _until(self, moment: float) -> simpy.Event:
        return self.env.timeout(max(0.0, moment - self.env.now))

    # -- places

    def _find(self) -> Node | None:
        """The emptier of two nodes, drawn at random; takes a place there. None when the cluster is as good as full, or
        others wait already."""
        if self._line:
            return None
        for _ in range(DRAWS):
            drawn = (self.random.choice(self.nodes), self.random.choice(self.nodes))
            best = max((one for one in drawn if one.up and one.room > 0), key=lambda one: one.room, default=None)
            if best is not None:
                best.room -= 1
                return best
        return None

    def _free(self, node: Node) -> None:
        if node.up and self._line:
            self._line.popleft().succeed(node)
        else:
            node.room += 1

    # -- disturbances

    def lose(self, node: Node) -> None:
        """The node is gone; what ran there is asked for again when that is noticed."""
        node.up = False
        gone, node.running = node.running, set()
        self.counts.alive -= len(gone)
        for job in gone:
            attempt, since = self._attempts.pop(job)
            if attempt >= ATTEMPTS:
                self.counts.lost += 1
                continue
            self.counts.again += 1
            self.env.process(self._again(attempt + 1, since))

    def _again(self, attempt: int, since: float) -> Steps:
        yield self.env.timeout(TOLD)
        self.ask(attempt, since)

    def bring_back(self, node: Node) -> None:
        """The node is there again, empty."""
        node.up, node.room, node.warm = True, self.shape.most, 0
        while self._line and node.room > 0:
            node.room -= 1
            self._line.popleft().succeed(node)

    def roll_out(self, width: int, size_gb: float, registry_gbps: float, node_gbps: float) -> Steps:
        """A new image on every node, `width` at a time: a node takes no new sandbox while it pulls."""
        for first in range(0, len(self.nodes), width):
            batch = [one for one in self.nodes[first : first + width] if one.up]
            for node in batch:
                node.up = False
            yield self.env.timeout(8 * size_gb / min(node_gbps, registry_gbps / max(1, len(batch))))
            for node in batch:
                node.up = True
                while self._line and node.room > 0:
                    node.room -= 1
                    self._line.popleft().succeed(node)
