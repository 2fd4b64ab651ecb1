"""`Cluster`: sandboxes on other machines, with the methods of `Sandbox`.

    with Cluster("auto") as cluster, cluster.sandbox({"limits": {"cpus": 1}}) as sb:
        print(sb.exec("echo hello").stdout)

Ray decides on which machine it is. Everything else, from the configuration with its secrets to the last byte of output,
goes straight to that machine's agent, over TLS with certificates on both sides.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

from sandbox.client import Client
from sandbox.cluster import travel
from sandbox.cluster.given import hiding, with_secrets
from sandbox.cluster.nodes import Nodes, queue_length
from sandbox.config.given import read_config
from sandbox.config.section import owned
from sandbox.errors import InvalidArgument, SandboxClosed, SandboxError, SandboxLost
from sandbox.remote_server import _connection

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from typing import Self

    from sandbox.cluster.identity import Identity
    from sandbox.cluster.nodes import Place
    from sandbox.cluster.records import Records
    from sandbox.cluster.travel import Sent
    from sandbox.rpc.connection import Connection
    from sandbox.sandbox import Sandbox

DEFAULT_CPUS = 0.1  # reserved for a sandbox whose configuration does not limit its processors
ATTEMPTS = 3  # at finding a machine whose agent answers
ENGINES = {"qemu": "sandbox_qemu", "microvm": "sandbox_qemu", "firecracker": "sandbox_kvm"}


class ClusterSandbox(Client):
    """A sandbox on a machine of the cluster. `node` is Ray's id of the machine.

    When the machine or its agent is gone, calls raise SandboxLost. It ends when it is closed, or with this process.
    """

    node: str = ""
    _sent: Sent | None = None
    _release: Callable[[], object] = staticmethod(lambda: None)

    def bring_back(self) -> Sandbox:
        """Returns a sandbox on this machine with the changes of this one in its overlay: review and apply them there.

        Raises InvalidArgument when no project was sent, SandboxError for a path that was changed here, too.
        """
        if self._sent is None:
            raise InvalidArgument("no project was sent with this sandbox")
        return travel.bring_back(self, self._sent)

    def close(self, grace: float = 0.0) -> None:
        """Ends the sandbox and gives its place back. Idempotent.

        Commands that run have `grace` seconds to end by themselves; no new one is started meanwhile.
        """
        super().close(grace)
        self._release()

    def __repr__(self) -> str:
        return f"<ClusterSandbox {self.id} on {self.node[:12]}{' closed' if self._connection.ended else ''}>"


class Cluster:
    """The machines of a Ray cluster. Safe to use from many threads."""

    def __init__(self, address: str = "auto", *, pool: int = 0) -> None:
        """Joins the cluster at `address`: "auto", "HOST:PORT" or "ray://HOST:PORT".

        `pool` is how many sandboxes each agent keeps ready; that of the first who starts an agent counts. Raises
        SandboxError when Ray is not installed or cannot be reached.
        """
        from sandbox.cluster.identity import Identity

        self._nodes = Nodes(address, pool)
        self._identity: Identity = Identity(f"sandbox client {os.getpid()}")
        self._contexts: dict[bytes, ssl.SSLContext] = {}
        self._made: weakref.WeakSet[ClusterSandbox] = weakref.WeakSet()
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
    ) -> ClusterSandbox:
        """Starts a sandbox where there is room, and waits for room: `timeout` seconds, or for ever.

        Reserved are `cpus` (by default `limits.cpus`, else a tenth) and `memory` in bytes (by default `limits.memory`),
        and further `resources` of Ray's by name. While it waits, `on_wait` is called each second with the position in
        the queue. With `project`, a directory here, the sandbox has what a program in a sandbox around it could
        read, under an overlay: `bring_back`. Other paths are the machine's, and without `filesystem.root` the sandbox
        has a new, empty directory. Raises what `Sandbox` raises, and SandboxError when no machine has room in time.
        """
        if self._closed:
            raise SandboxClosed("the cluster is closed")
        given = with_secrets(owned(config) or {})
        wanted = needed(given, cpus, memory, resources)
        problem: SandboxError | None = None
        without: list[str] = []
        for _ in range(ATTEMPTS):
            place = self._nodes.place(wanted, timeout, on_wait, without)
            try:
                return self._on(place, given, hooks, project)
            except SandboxLost as lost:  # its agent is gone, or takes no more
                problem = lost
                without.append(place.node)
                place.release()
            except BaseException:
                place.release()
                raise
        assert problem is not None
        raise problem

    def _on(
        self, place: Place, config: dict[str, Any], hooks: object | None, project: str | os.PathLike[str] | None
    ) -> ClusterSandbox:
        try:
            url, authority, token, id = self._nodes.ask(place.node, "lease", self._identity.authority)
            sent = None
            if project is not None:
                sent = travel.send(os.fspath(project), url, self._context(authority), token, hiding(config))
                config = {**config, "filesystem": {**config.get("filesystem", {}), "root": sent.root, "overlay": True}}
            connection = self._connect(f"{url}/v1/rpc", authority, token)
        except SandboxError as problem:
            if type(problem) is not SandboxError:
                raise
            raise SandboxLost(*problem.args) from problem
        connection.on_end = place.release
        made = ClusterSandbox(config, hooks=hooks, connection=connection, create=True)
        made.node, made._sent = place.node, sent
        nodes, node = self._nodes, place.node

        def release() -> None:
            place.release()
            if not nodes.closed:
                nodes.tell(node, "release", id)

        made._release = release
        made._reach = lambda other: self._connect(f"{url}/v1/sandboxes/{other}/rpc", authority, token)
        self._made.add(made)
        return made

    def _context(self, authority: bytes) -> ssl.SSLContext:
        context = self._contexts.get(authority)
        if context is None:
            context = self._contexts[authority] = self._identity.for_client(authority)
        return context

    def _connect(self, url: str, authority: bytes, token: str) -> Connection:
        connection = _connection(url, token, None, self._context(authority))
        connection.lost = SandboxLost
        return connection

    def nodes(self) -> list[dict[str, Any]]:
        """Returns the machines: what Ray says about each, and its agent, where there is one. Raises SandboxError."""
        from sandbox.cluster.overview import nodes

        return nodes(self._nodes)

    def waiting(self) -> int:
        """Returns how many sandboxes wait for room, of all programs. Raises SandboxError."""
        return queue_length()

    def drain(self, node: str, draining: bool = True) -> None:
        """Has no further sandbox made on a machine; those that are there go on. Raises NotFound, SandboxError."""
        from sandbox.cluster.overview import found

        self._nodes.ask(found(self._nodes, node), "drain", draining)

    def records(self) -> Records:
        """Returns a reader of the records of all machines, as one feed. Raises SandboxError."""
        from sandbox.cluster.records import Records

        return Records(self._nodes)

    def close(self) -> None:
        """Ends the sandboxes that were made here, and leaves the cluster. Idempotent."""
        self._closed = True
        for one in list(self._made):
            one.close()
        self._nodes.close()

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
