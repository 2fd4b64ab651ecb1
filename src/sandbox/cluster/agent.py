"""What runs on each machine of a cluster: the HTTP server of `sandbox serve`, in a process that Ray started.

It owns the machine's sandboxes, with their own registry, record and pool, and they end when it ends. Ray only carries
addresses, public certificates and tokens that are good for one sandbox; everything else goes through the server.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any

import uvicorn

from sandbox.audit.kept import Kept
from sandbox.cluster import record_routes
from sandbox.cluster.blob_routes import routes
from sandbox.cluster.blobs import Blobs
from sandbox.cluster.identity import Identity, admit
from sandbox.cluster.line import Line
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

SCOPES = frozenset(("read", "create", "exec", "files", "apply", "network", "answer", "kill", "host"))
UNUSED = 60.0  # seconds within which a lease must be used
SILENCE = 20  # seconds after which a client that does not answer counts as gone
LONGEST = 86400.0  # seconds that a token for records is valid
THREADS = 16  # calls by way of Ray at a time


class Agent:
    """The agent of one machine. Its methods are called by way of Ray."""

    def __init__(self, node: str, address: str, pool: int = 0, keeper: str = "", nodes_class: Any = None) -> None:
        """`node` is Ray's id of the machine, `address` where others reach it, `keeper` the node that keeps records.

        `nodes_class` is `Nodes`, which starts agents: it is a parameter to avoid a circular import.
        """
        self._nodes = nodes_class
        nodes = os.path.join(home(), "nodes")
        kept = os.path.join(home(), "cluster-records")
        os.environ["SANDBOX_HOME"] = self._home = os.path.join(nodes, node[:12])
        os.makedirs(self._home, mode=0o700, exist_ok=True)
        self._node, self._address, self._pool = node, address, pool
        self._kept = Kept(kept) if node == keeper else None
        self._identity = Identity(f"sandbox agent {node[:12]}", (address,))
        self._context = self._identity.for_server()
        self._admitted: set[bytes] = set()
        self._leases: dict[str, float] = {}
        self._readers: dict[bytes, str] = {}  # ids of tokens for records, by their holder's authority
        self._mine = Identity(f"sandbox shipper {node[:12]}")
        self._lock = Lock()
        self._draining = False
        self._listening = _listen(address)
        self._started = Event()
        self._server: Any = None
        Thread(target=self._serve, name="sandbox-agent", daemon=True).start()
        self._started.wait()
        self._shipper = Shipper(Ownership(nodes, node[:12]), lambda: self._to_keeper(keeper)) if keeper else None

    def lease(self, authority: bytes) -> tuple[str, bytes, str, str]:
        """Lets a client of that authority make one sandbox. Returns the address, our authority, a token and its id.

        Raises SandboxError while the machine is being drained.
        """
        if self._draining:
            raise SandboxError("the node {node} is being drained", node=self._node[:12])
        with self._lock:
            self._admit(authority)
            self._forget_unused()
            text, token = self._server.tokens.new(SCOPES, name="lease", passing=True)
            self._server.leases[token.id] = ""
            self._leases[token.id] = time.monotonic()
        return self._url(), self._identity.authority, text, token.id

    def release(self, token: str) -> None:
        """Ends a lease, whose sandbox has ended. Idempotent."""
        with self._lock:
            self._forget(token)

    def keeper(self, authority: bytes) -> tuple[str, bytes, str]:
        """Lets a holder of that authority send and read records. Returns the address, our authority and a token."""
        with self._lock:
            self._admit(authority)
            self._server.tokens.forget(self._readers.pop(authority, ""))
            text, token = self._server.tokens.new(frozenset(("audit",)), name="record", lifetime=LONGEST, passing=True)
            self._readers[authority] = token.id
        return self._url(), self._identity.authority, text

    def status(self) -> dict[str, Any]:
        """The machine as `sandbox cluster nodes` shows it."""
        running = [one for one in entries(self._home) if one.running]
        ready = self._server.ready.stats().ready if self._server.ready is not None else 0
        return {
            "node": self._node, "address": self._address, "pid": os.getpid(), "sandboxes": len(running) - ready,
            "ready": ready, "draining": self._draining, "home": self._home,
            "record": self._shipper.problem if self._shipper is not None else "",
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
        url, authority, token = self._nodes("auto", 0).ask(node, "keeper", self._mine.authority, timeout=SILENCE)
        return Line(url, self._mine.for_client(authority), token, timeout=SILENCE)

    # -- leases

    def _forget_unused(self) -> None:
        """Forgets leases that were not used in time, and those whose sandbox has ended."""
        now = time.monotonic()
        for token, since in list(self._leases.items()):
            sandbox = self._server.leases.get(token, "")
            ended = sandbox not in ("", "…") and self._server.reach.known(sandbox) is None
            if ended or (not sandbox and now > since + UNUSED):
                self._forget(token)

    def _forget(self, token: str) -> None:
        self._leases.pop(token, None)
        self._server.leases.pop(token, None)
        self._server.tokens.forget(token)

    # -- the server

    def _serve(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        port = self._listening.getsockname()[1]
        config = resolve({}, project=self._home).users
        settings = Settings(record=record_directory(config), host=self._address, port=port, pool=self._pool, rate=1e6)
        announce(self._home, port)
        self._server = Server(Sandboxes(tell=lambda ignored: None), settings)
        more = routes(Blobs(os.path.join(self._home, "blobs")))
        if self._kept is not None:
            more += record_routes.routes(self._kept)
        served = uvicorn.Config(
            application(self._server, more), http=bounded(), ws="wsproto", ws_max_size=LARGEST_MESSAGE,
            ws_per_message_deflate=False, loop="asyncio", lifespan="on", log_config=None, access_log=False,
            server_header=False,
        )  # fmt: skip
        served.load()
        served.ssl = self._context
        running = _Uvicorn(served)
        running.ready = self._started
        await running.serve(sockets=[self._listening])


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
        self.ready.set()
