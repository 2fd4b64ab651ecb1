"""Ends the connections to an agent that does not answer any more, though its machine does.

Ray checks machines, and the kernel ends the connections of a process that died. A process that hangs keeps its
connections: so each agent that has sandboxes of ours is asked once a second whether it is there.
"""

from __future__ import annotations

import http.client
import time
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from sandbox.cluster.line import Line
from sandbox.errors import SandboxError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

PAUSE = 1.0  # seconds between two questions
ANSWER = 2.0  # seconds to wait for an answer
TIMES = 3  # questions without an answer, at least, before an agent is given up


class AgentWatch:
    """A cluster's threads, one for each agent with sandboxes of ours."""

    def __init__(self, patience: float) -> None:
        """An agent is given up when it has not answered for `patience` seconds."""
        self._patience = patience
        self._lock = Lock()
        self._agents: dict[str, _Agent] = {}

    def add(self, key: object, url: str, context: ssl.SSLContext, lost: Callable[[], object]) -> None:
        """Calls `lost` when the agent at `url` is given up, unless `remove` comes first."""
        with self._lock:
            agent = self._agents.get(url)
            if agent is None:
                agent = self._agents[url] = _Agent(url, context)
                Thread(target=self._run, args=(agent,), name="sandbox-agent-watch", daemon=True).start()
            agent.told[key] = lost

    def remove(self, key: object) -> None:
        """Idempotent."""
        with self._lock:
            for agent in list(self._agents.values()):
                agent.told.pop(key, None)
                self._leave_unused(agent)

    def close(self) -> None:
        """Stops asking. Idempotent."""
        with self._lock:
            for agent in list(self._agents.values()):
                agent.told.clear()
                self._leave_unused(agent)

    def _leave_unused(self, agent: _Agent) -> None:
        if not agent.told and self._agents.get(agent.url) is agent:
            del self._agents[agent.url]
            agent.ended.set()

    def _run(self, agent: _Agent) -> None:
        since, missed = time.monotonic(), 0
        try:
            while not agent.ended.wait(PAUSE):
                if agent.answers():
                    since, missed = time.monotonic(), 0
                    continue
                missed += 1
                if missed >= TIMES and time.monotonic() - since > self._patience:
                    self._lost(agent)
                    return
        finally:
            agent.leave()

    def _lost(self, agent: _Agent) -> None:
        with self._lock:
            told, agent.told = list(agent.told.values()), {}
            self._leave_unused(agent)
        for lost in told:
            lost()


class _Agent:
    """One agent, and who wants to know."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self.url = url
        self.told: dict[object, Callable[[], object]] = {}
        self.ended = Event()
        self._context = context
        self._line: Line | None = None

    def answers(self) -> bool:
        try:
            self._line = self._line or Line(self.url, self._context, "", timeout=ANSWER)
            self._line.ask("GET", "/v1/cluster/alive")
        except (OSError, http.client.HTTPException, SandboxError):
            self.leave()
            return False
        return True

    def leave(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
