"""`Cluster`: sandboxes on other machines, with the methods of `Sandbox`.

    with Cluster("auto") as cluster, cluster.sandbox({"limits": {"cpus": 1}}) as sb:
        print(sb.exec("echo hello").stdout)

Ray decides which machine it is on. Everything else, from the configuration with its secrets to the last byte of output,
goes straight to that machine's agent, over TLS with certificates on both sides.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from sandbox.cluster import placing, travel
from sandbox.cluster.agent_stream import connect
from sandbox.cluster.agent_watch import AgentWatch
from sandbox.cluster.checkpoints import Saving, pack, unpack
from sandbox.cluster.cluster_sandbox import ClusterSandbox, closed
from sandbox.cluster.line import AgentRefused
from sandbox.cluster.node_config import hiding, with_secrets
from sandbox.cluster.node_watch import NodeWatch
from sandbox.cluster.nodes import RayNodes
from sandbox.config.from_program import read_config
from sandbox.config.section import owned
from sandbox.errors import SandboxClosed, SandboxError, SandboxLost

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from sandbox.cluster.checkpoints import Checkpoints
    from sandbox.cluster.identity import Identity
    from sandbox.cluster.places import Reservation
    from sandbox.cluster.records import Records
    from sandbox.cluster.travel import Sent
    from sandbox.rpc.connection import Connection

DEFAULT_CPUS = 0.1  # reserved for a sandbox whose configuration does not limit its processors
PATIENCE = 10.0  # seconds that an agent may be silent
ATTEMPTS = 3  # at finding a machine whose agent answers
ENGINES = {"qemu": "sandbox_qemu", "microvm": "sandbox_qemu", "firecracker": "sandbox_kvm"}


class _Way(NamedTuple):
    """How to reach an agent for one sandbox: what `Agent.lease` returns."""

    url: str
    authority: bytes
    token: str
    id: str
    port: int

    @property
    def address(self) -> tuple[str, int]:
        return urlsplit(self.url).hostname or "", self.port


class _Asked(NamedTuple):
    """What `Cluster.sandbox` was called with, to start the same sandbox again."""

    config: dict[str, Any]
    resources: dict[str, float]
    hooks: object | None
    project: str | os.PathLike[str] | None
    timeout: float | None
    on_wait: Callable[[int], object] | None
    placement: str | None


class _Lines:
    """Connections to agents, each of which is known by its authority."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._contexts: dict[bytes, ssl.SSLContext] = {}
        self._resumed: dict[ssl.SSLContext, ssl.SSLSession] = {}

    def context(self, authority: bytes) -> ssl.SSLContext:
        context = self._contexts.get(authority)
        if context is None:
            context = self._contexts[authority] = self._identity.for_client(authority)
        return context

    def connect(self, way: _Way, sandbox: str = "") -> Connection:
        connection = connect(way.address, self.context(way.authority), way.token, sandbox, self._resumed)
        connection.lost = SandboxLost
        return connection


class Cluster:
    """The machines of a Ray cluster. Safe to use from many threads."""

    def __init__(
        self, address: str = "auto", *, pool: int = 0, team: str | None = None, patience: float = PATIENCE
    ) -> None:
        """Joins the cluster at `address`: "auto", "HOST:PORT" or "ray://HOST:PORT".

        `team` is whose sandboxes are made, by default the variable SANDBOX_TEAM: see `set_teams`.
        `pool` is how many sandboxes each agent keeps ready; the client that starts an agent decides. An agent that does
        not answer for `patience` seconds counts as lost. Raises SandboxError when Ray is not installed or cannot be
        reached.
        """
        from sandbox.cluster.identity import Identity

        self._nodes = RayNodes(address, pool, os.environ.get("SANDBOX_TEAM", "") if team is None else team)
        self._identity: Identity = Identity(f"sandbox client {os.getpid()}")
        self._lines = _Lines(self._identity)
        self._made: set[ClusterSandbox] = set()
        self._watch = NodeWatch(self._nodes)
        self._agents = AgentWatch(patience)
        self._joining = Lock()  # held while a sandbox becomes one of ours, or none may any more
        self._closed = False

    def sandbox(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        project: str | os.PathLike[str] | None = None,
        hooks: object | None = None,
        cpus: float | None = None,
        memory: int | None = None,
        resources: Mapping[str, float] | None = None,
        timeout: float | None = None,
        on_wait: Callable[[int], object] | None = None,
        checkpoints: Checkpoints | None = None,
        placement: str | None = None,
    ) -> ClusterSandbox:
        """Starts a sandbox on a machine with room, and waits for room: `timeout` seconds, or for ever.

        It reserves `cpus` (by default `limits.cpus`, else a tenth), `memory` in bytes (by default `limits.memory`), and
        further `resources` of Ray by name. While it waits, `on_wait` is called each second with the position in the
        queue. `project` is a directory here: the sandbox gets what a program in a sandbox around it could read, under
        an overlay; see `bring_back`. Other paths are those of the machine, and without `filesystem.root` the sandbox
        has a new, empty directory. With `checkpoints`, it goes on elsewhere from the last one when its machine is lost.
        `placement` "spread" prefers the machine with the most room, "pack" the one with the least that is enough; of
        both, and without it, one that has the image or template already. Raises what `Sandbox` raises, and SandboxError
        when no machine has room in time.
        """
        if self._closed:
            raise SandboxClosed("the cluster is closed")
        given = with_secrets(owned(config) or {})
        if checkpoints is not None:
            given["filesystem"] = {**given.get("filesystem", {}), "overlay": True}
        wanted = needed(given, cpus, memory, resources)
        asked = _Asked(given, wanted, hooks, project, timeout, on_wait, placing.checked(placement))
        made = self._reserved(asked, lambda reservation: self._on(reservation, given, hooks, project))
        if checkpoints is not None:
            made._saving = Saving(checkpoints, lambda: made._steadily(pack))
            made._recover = lambda lost: self._move(lost, asked)
        return made

    def _reserved(self, asked: _Asked, start: Callable[[Reservation], ClusterSandbox]) -> ClusterSandbox:
        """What `start` returns on a machine with room whose agent answers. Raises SandboxError."""
        problem: SandboxError | None = None
        without: list[str] = []
        for _ in range(ATTEMPTS):
            target = self._target(asked, without)
            reservation = self._nodes.reserve(asked.resources, asked.timeout, asked.on_wait, without, target)
            try:
                return start(reservation)
            except SandboxLost as lost:  # its agent is gone, or takes no more sandboxes
                problem = lost
                without.append(reservation.node)
                reservation.release()
            except BaseException:
                reservation.release()
                raise
        assert problem is not None
        raise problem

    def _target(self, asked: _Asked, without: Sequence[str]) -> str:
        """The machine that Ray is asked for first, if any."""
        useful = placing.near(asked.config)
        if asked.placement is None and not useful:
            return ""
        cached = self._nodes.cached() if useful else {}
        return placing.preferred(self._nodes.free(without), asked.resources, asked.placement, useful, cached)

    def _on(
        self,
        reservation: Reservation,
        config: dict[str, Any],
        hooks: object | None,
        project: str | os.PathLike[str] | None,
    ) -> ClusterSandbox:
        connection, asked, sent, way = self._reached(reservation, config, project)
        made = ClusterSandbox(asked, hooks=hooks, connection=connection, create=True)
        made._sent = sent
        self._settle(made, reservation, way)
        with self._joining:
            if not self._closed:
                self._made.add(made)
                made._forgotten = lambda: self._made.discard(made)
                return made
        made.close()
        raise SandboxClosed("the cluster is closed")

    def _reached(
        self, reservation: Reservation, config: dict[str, Any], project: str | os.PathLike[str] | None
    ) -> tuple[Connection, dict[str, Any], Sent | None, _Way]:
        """A connection to the agent there, and the configuration to create a sandbox with. Raises SandboxLost."""
        try:
            way = _Way(*self._nodes.ask(reservation.node, "lease", *self._identity.shown))
            try:
                sent = None if project is None else self._send(project, way, config)
                connection = self._lines.connect(way)
            except BaseException:
                self._nodes.tell(reservation.node, "release", way.id)
                raise
        except SandboxError as problem:
            if type(problem) not in (SandboxError, AgentRefused):
                raise
            raise SandboxLost(*problem.args) from problem
        connection.on_end = lambda: self._lost(reservation)
        if sent is not None:
            config = {**config, "filesystem": {**config.get("filesystem", {}), "root": sent.root, "overlay": True}}
        return connection, config, sent, way

    def _send(self, project: str | os.PathLike[str], way: _Way, config: dict[str, Any]) -> Sent:
        return travel.send(os.fspath(project), way.url, self._lines.context(way.authority), way.token, hiding(config))

    def _settle(
        self, made: ClusterSandbox, reservation: Reservation, way: _Way, connection: Connection | None = None
    ) -> None:
        """Sets what a sandbox needs to know about its machine."""
        line = connection or made._line

        def release() -> None:
            self._watch.remove(line)
            self._agents.remove(line)
            if made._orderly:
                self._nodes.give_back(reservation)
            else:
                self._lost(reservation)

        made.node, made._release = reservation.node, release
        made._reach = lambda other: self._lines.connect(way, other)
        self._watch.add(line, reservation.node, line.abandon)
        self._agents.add(line, way.url, self._lines.context(way.authority), line.abandon)

    def _lost(self, reservation: Reservation) -> None:
        self._nodes.forget_places(reservation.node)
        reservation.release()

    def _move(self, made: ClusterSandbox, asked: _Asked) -> None:
        """Lets a sandbox whose machine was lost go on elsewhere. Raises SandboxLost when there is no checkpoint."""
        assert made._saving is not None
        content = made._saving.last()
        if content is None:
            raise SandboxLost("the sandbox was lost before its first checkpoint")
        sent = made._sent
        closed((made._line.close, made._close_home, made._release))

        def still_wanted(position: int) -> None:
            if made._closing:
                raise SandboxClosed("the sandbox was closed")
            if asked.on_wait is not None:
                asked.on_wait(position)

        def again(reservation: Reservation) -> ClusterSandbox:
            connection, config, _, way = self._reached(reservation, asked.config, asked.project)
            other = ClusterSandbox(config, hooks=asked.hooks, connection=connection, create=True)
            try:
                unpack(other, content)
                made._learn(other._info())
                made._sent = sent
                self._settle(made, reservation, way, connection)
                made._home = other._home
                made._go_on(connection)
            except BaseException:
                connection.close()  # which ends the sandbox there
                other._close_home()
                raise
            return made

        self._reserved(asked._replace(on_wait=still_wanted), again)

    def nodes(self) -> list[dict[str, Any]]:
        """Returns the machines: what Ray says about each, and its agent, where there is one. Raises SandboxError."""
        from sandbox.cluster.overview import nodes

        return nodes(self._nodes)

    def usage(self) -> list[dict[str, Any]]:
        """Returns what each sandbox of all clients uses: the one with the most processor time first."""
        from sandbox.cluster.overview import usage

        return usage(self._nodes)

    def waiting(self) -> int:
        """Returns how many sandboxes of all clients wait for room. Raises SandboxError."""
        return self._nodes.waiting()

    def set_teams(self, teams: Mapping[str, Any]) -> None:
        """Sets what each team may have, and its priority in the queue: docs/cluster.md. {} removes all of it.

        Raises ConfigError, SandboxError.
        """
        self._nodes.set_teams(teams)

    def teams(self) -> list[dict[str, Any]]:
        """Returns the teams: what each may have, has, and how many of its sandboxes wait. Raises SandboxError."""
        found: list[dict[str, Any]] = self._nodes.teams()["teams"]
        return found

    def queue(self) -> list[dict[str, Any]]:
        """Returns who waits for their turn, in order: the team, its priority, and what for. Raises SandboxError."""
        found: list[dict[str, Any]] = self._nodes.teams()["queue"]
        return found

    def drain(self, node: str, draining: bool = True) -> None:
        """Stops making sandboxes on a machine; those that exist go on. Raises NotFound, SandboxError."""
        from sandbox.cluster.overview import found

        self._nodes.ask(found(self._nodes, node), "drain", draining)

    def records(self) -> Records:
        """Returns a reader of the records of all machines, as one feed. Raises SandboxError."""
        from sandbox.cluster.records import Records

        return Records(self._nodes)

    def close(self) -> None:
        """Ends the sandboxes that were made here, and leaves the cluster. Idempotent.

        All of them are ended, whatever happens to one; then the first error is raised.
        """
        with self._joining:
            self._closed = True
        problems = closed(one.close for one in list(self._made))
        problems += closed((self._agents.close, self._watch.close, self._nodes.close))
        if problems:
            raise problems[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def needed(
    config: Mapping[str, Any], cpus: float | None, memory: int | None, more: Mapping[str, float] | None
) -> dict[str, float]:
    """The resources to ask Ray for. Raises ConfigError."""
    read = read_config({key: config[key] for key in ("limits", "engine", "resources") if key in config})
    wanted: dict[str, float] = {"CPU": cpus if cpus is not None else read.limits.cpus or DEFAULT_CPUS}
    size = memory if memory is not None else read.limits.memory
    if size:
        wanted["memory"] = float(size)
    if read.engine in ENGINES:
        wanted[ENGINES[read.engine]] = 1.0
    return {**wanted, **(more or {})}
