"""Agents without Ray: the class itself in this process, and a stand-in for what it asks Ray for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sandbox.client import Client
from sandbox.cluster.agent import Agent
from sandbox.cluster.agent_stream import connect
from sandbox.cluster.identity import Identity
from sandbox.cluster.line import Line
from sandbox.errors import SandboxLost
from sandbox.remote_server import _connection


class Known:
    """What `Nodes` is to an agent: a way to call the methods of other agents."""

    agents: dict[str, Agent]
    published: dict[str, list[str]] = {}

    def __init__(self, address: str, pool: int) -> None:
        pass

    def publish(self, node: str, cached: list[str]) -> None:
        self.published[node] = cached

    def ask(self, node: str, method: str, *given: Any, timeout: float = 60.0) -> Any:
        return getattr(self.agents[node], method)(*given)


@contextmanager
def agents(*nodes: str, keeper: str = "") -> Iterator[list[Agent]]:
    """Agents of those nodes; SANDBOX_HOME is the same for all, and restored."""
    home = os.environ["SANDBOX_HOME"]
    known = type("Known", (Known,), {"agents": {}})
    made: list[Agent] = []
    try:
        for node in nodes:
            os.environ["SANDBOX_HOME"] = home
            made.append(Agent(node, "127.0.0.1", 0, keeper, known))
            known.agents[node] = made[-1]  # type: ignore[attr-defined]
        yield made
    finally:
        for one in made:
            one.close()
        os.environ["SANDBOX_HOME"] = home


class Leased:
    """A client with one lease of an agent."""

    def __init__(self, agent: Agent) -> None:
        self.identity = Identity("client")
        self.agent = agent
        self.url, authority, self.token, self.id, self.port = agent.lease(*self.identity.shown)
        self.context = self.identity.for_client(authority)

    def line(self) -> Line:
        return Line(self.url, self.context, self.token)

    def connect(self, sandbox: str = "") -> Any:
        connection = connect(("127.0.0.1", self.port), self.context, self.token, sandbox)
        connection.lost = SandboxLost
        return connection

    def web_socket(self, path: str = "/v1/rpc") -> Any:
        """The same by way of the HTTP server, which serves it, too."""
        return _connection(f"{self.url}{path}", self.token, None, self.context)

    def sandbox(self, config: dict[str, Any] | None = None) -> Client:
        return Client(config or {}, connection=self.connect(), create=True)
