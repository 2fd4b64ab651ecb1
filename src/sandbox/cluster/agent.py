"""What runs on each machine of a cluster: the HTTP server of `sandbox serve`, in a process that Ray started.

It owns the machine's sandboxes, with their own registry, record and pool, and they end when it ends. Ray only carries
addresses, public certificates and tokens that are good for one sandbox; everything else goes through the server.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import Any

import uvicorn

from sandbox.audit.received import ReceivedRecords
from sandbox.cluster import record_routes
from sandbox.cluster.blob_routes import routes
from sandbox.cluster.blobs import BlobStore
from sandbox.cluster.direct_lines import DirectLines
from sandbox.cluster.identity import Identity, admit
from sandbox.cluster.leases import Leases, clean, clean_ended, hold
from sandbox.cluster.line import Line
from sandbox.cluster.placing import cached_here, near
from sandbox.cluster.shipping import Ownership, Shipper
from sandbox.config.home import home, record_directory
from sandbox.config.layers import resolve
from sandbox.errors import SandboxError
from sandbox.registry.registry import entries
from sandbox.registry.servers import announce
from sandbox.sandboxes import Sandboxes
from sandbox.server.app import application
from sandbox.server.connections import bounded
from sandbox.server.run import LARGEST_MESSAGE
from sandbox.server.server import Server
from sandbox.server.settings import Settings
from sandbox.websocket import notice_silence

SILENCE = 20  # seconds after which a client that does not answer counts as gone
LONGEST = 86400.0  # seconds that a token for records is valid
THREADS = 16  # calls by way of Ray at a time
SWEEP = 5.0  # seconds between two looks for what ended sandboxes left


class Agent:
    """The agent of one machine. Its methods are called by way of Ray."""

    def __init__(self, node: str, address: str, pool: int = 0, keeper: str = "", nodes_class: Any = None) -> None:
        """`node` is Ray's id of the machine, `address` where others reach it, `keeper` the node that keeps records.

        `nodes_class` is `Nodes`, which starts agents: it is a parameter to avoid a circular import.
        """
        ordinary_priority()
        self._nodes = nodes_class
        nodes = os.path.join(home(), "nodes")
        kept = os.path.join(home(), "cluster-records")
        os.environ["SANDBOX_HOME"] = self._home = os.path.join(nodes, node[:12])
        os.makedirs(self._home, mode=0o700, exist_ok=True)
        self._node, self._address, self._pool = node, address, pool
        self._kept = ReceivedRecords(kept) if node == keeper else None
        self._identity = Identity(f"sandbox agent {node[:12]}", (address,))
        self._context = self._identity.for_server()
        self._admitted: set[bytes] = set()
        self._readers: dict[bytes, str] = {}  # ids of tokens for records, by their holder's authority
        self._mine = Identity(f"sandbox shipper {node[:12]}")
        self._lock = Lock()
        self._draining = False
        self._left = ""  # why something of an ended sandbox could not be removed
        self._shipper: Shipper | None = None
        self._templates: set[str] = set()
        self._published: list[str] = []
        self._listening, self._lines = _listen(address), _listen(address)
        self._direct: DirectLines | None = None
        self._started, self._ended = Event(), Event()
        self._problem: BaseException | None = None
        self._server: Any = None
        self._running: Any = None
        self._leases: Any = None
        self._blobs = BlobStore(os.path.join(self._home, "blobs"))
        self._start()
        owned = Ownership(nodes, node[:12], clean_ended)
        if keeper:
            self._shipper = Shipper(owned, lambda: self._to_keeper(keeper))

    def _start(self) -> None:
        self._alive = hold(self._home)
        clean(self._home)  # what an agent of this machine left that was killed
        self._thread = Thread(target=self._serve, name="sandbox-agent", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._problem is not None:
            raise SandboxError("the node's server cannot start: {problem}", problem=self._problem) from self._problem
        Thread(target=self._sweep, name="sandbox-sweep", daemon=True).start()

    def lease(self, authority: bytes, holder: str) -> tuple[str, bytes, str, str, int]:
        """Lets a client of that authority make one sandbox.

        Returns the address, our authority, a token and its id, and the port for direct lines.

        The token is good for nobody but the `holder` of the certificate of that digest.

        Raises SandboxError while the machine is being drained.
        """
        if self._draining:
            raise SandboxError("the node {node} is being drained", node=self._node[:12])
        with self._lock:
            self._admit(authority)
        text, id = self._leases.new(holder)
        return self._url(), self._identity.authority, text, id, self._lines.getsockname()[1]

    def release(self, token: str) -> None:
        """Ends a lease for which no sandbox was made. Idempotent."""
        self._leases.release(token)

    def keeper(self, authority: bytes, holder: str) -> tuple[str, bytes, str]:
        """Lets a holder of that authority send and read records. Returns the address, our authority and a token."""
        with self._lock:
            self._admit(authority)
            self._server.tokens.forget(self._readers.pop(authority, ""))
            text, token = self._server.tokens.new(
                frozenset(("audit",)), name="record", lifetime=LONGEST, passing=True, surface=record_routes.SURFACE,
                holder=holder,
            )  # fmt: skip
            self._readers[authority] = token.id
        return self._url(), self._identity.authority, text

    def status(self) -> dict[str, Any]:
        """The machine as `sandbox cluster nodes` shows it."""
        running = [one for one in entries(self._home) if one.running]
        ready = self._server.ready.stats().ready if self._server.ready is not None else 0
        return {
            "node": self._node, "address": self._address, "pid": os.getpid(), "sandboxes": len(running) - ready,
            "ready": ready, "draining": self._draining, "home": self._home,
            "record": self._shipper.problem if self._shipper is not None else "", "left": self._left,
        }  # fmt: skip

    def usage(self) -> list[dict[str, Any]]:
        """What each sandbox of the machine uses now, as `sandbox cluster top` shows it."""
        found = []
        for one in entries(self._home):
            if one.running:
                try:
                    used = dict(self._server.sandboxes.get(one.id).stats())
                except SandboxError:
                    continue  # it has just ended
                found.append({"sandbox": one.id, "node": self._node, **used})
        return found

    def drain(self, draining: bool = True) -> None:
        """Makes no further sandbox here; those that exist go on."""
        self._draining = draining

    def _url(self) -> str:
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"https://{host}:{self._listening.getsockname()[1]}"

    def _admit(self, authority: bytes) -> None:
        if authority not in self._admitted:
            admit(self._context, authority)
            self._admitted.add(authority)

    def _to_keeper(self, node: str) -> Line:
        """A connection to the agent that keeps records, which Ray knows how to find. Raises SandboxError."""
        url, authority, token = self._nodes("auto", 0).ask(node, "keeper", *self._mine.shown, timeout=SILENCE)
        return Line(url, self._mine.for_client(authority), token, timeout=SILENCE)

    def _sweep(self) -> None:
        while not self._ended.wait(SWEEP):
            try:
                self._leases.sweep()
                self._blobs.trim()
                self._publish()
            except Exception as problem:  # noqa: BLE001 - it is tried again, and `sandbox cluster nodes` shows it
                self._left = f"{type(problem).__name__}: {problem}"

    def _publish(self) -> None:
        """Lets clients know which images and templates are here, when that has changed."""
        for one in entries(self._home):
            if one.running:
                self._templates.update(name for name in near(one.config) if name.startswith("template:"))
        cached = cached_here(self._templates)
        if self._nodes is not None and cached != self._published:
            self._nodes("auto", 0).publish(self._node, cached)
            self._published = cached

    # -- the server

    def close(self) -> None:
        """Ends the server and its sandboxes. Ray does not call this: it ends the process."""
        self._ended.set()
        if self._shipper is not None:
            self._shipper.close()
        if self._direct is not None:
            self._direct.close()
        self._lines.close()
        self._running.should_exit = self._running.force_exit = True
        self._thread.join()
        os.close(self._alive)

    def _serve(self) -> None:
        try:
            asyncio.run(_run(self))
        except BaseException as problem:  # noqa: BLE001 - it is raised where the agent is made
            self._problem = problem
        finally:
            if self._started.is_set() and not self._ended.is_set():
                self._give_up()
            self._problem = self._problem or RuntimeError("it ended at once")
            self._started.set()

    def _give_up(self) -> None:
        """The server has ended by itself. Without it the agent is good for nothing; Ray starts a new one."""
        os._exit(1)

    def _served(self) -> uvicorn.Config:
        """Makes the server and what belongs to it, in the thread that serves. Raises SandboxError."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        port = self._listening.getsockname()[1]
        config = resolve({}, project=self._home).users
        settings = Settings(record=record_directory(config), host=self._address, port=port, pool=self._pool, rate=1e6)
        for one in (port, self._lines.getsockname()[1]):
            announce(self._home, one)
        self._server = Server(Sandboxes(tell=lambda ignored: None), settings)
        self._direct = DirectLines(self._server, self._context, self._lines, lambda lease: self._leases.ended(lease))
        self._leases = Leases(self._server, self._home, self._direct.cut)
        more = routes(self._blobs, self._leases)
        if self._kept is not None:
            more += record_routes.routes(self._kept)
        served = uvicorn.Config(
            application(self._server, more), http=bounded(), ws="wsproto", ws_max_size=LARGEST_MESSAGE,
            ws_per_message_deflate=False, loop="asyncio", lifespan="on", log_config=None, access_log=False,
            server_header=False,
        )  # fmt: skip
        served.load()
        served.ssl = self._context
        return served


async def _run(agent: Agent) -> None:
    """Serves until the agent is closed. It is no method: for one coroutine function in its class, Ray would run all
    calls of an actor in one event loop, one after the other."""
    agent._running = _Uvicorn(agent._served())
    agent._running.ready = agent._started
    await agent._running.serve(sockets=[agent._listening])


def ordinary_priority() -> None:
    """Undoes the niceness of 15 that Ray gives its workers by default, where that is allowed: sandboxes would inherit
    it, and on a busy machine the agent would be silent for so long that it counts as lost."""
    if "RAY_worker_niceness" in os.environ:
        return  # somebody has chosen it
    for thread in os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ["0"]:
        with suppress(OSError):
            if os.getpriority(os.PRIO_PROCESS, int(thread)) > 0:
                os.setpriority(os.PRIO_PROCESS, int(thread), 0)


def _listen(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # IPPROTO_TCP must be given: only then does asyncio switch off Nagle's algorithm.
    line = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    notice_silence(line, SILENCE)
    line.bind((address, 0))
    line.listen(1024)
    return line


class _Uvicorn(uvicorn.Server):
    """Runs in a thread; signals belong to Ray."""

    ready: Event

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self.ready.set()
