"""Sends this machine's records to the agent that keeps them all, as they are written.

How far a record was sent is known at the other end alone: after any end of this process, or of that one, it is asked,
and what follows is sent. A record whose agent is gone for good is sent by the next agent of the same machine.
"""

from __future__ import annotations

import fcntl
import os
from threading import Event, Thread
from typing import TYPE_CHECKING

from sandbox.audit.following import Following
from sandbox.cluster.line import Line, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE = 0.5  # seconds between two looks at what was written
LATER = 2.0  # seconds after which one that did not answer is asked again
OWNER = "owner"  # a file that an agent has locked while it lives
PATIENCE = 10.0


class Ownership:
    """Which records of a machine are ours to send: our own, and those whose agents have ended."""

    def __init__(self, nodes: str, own: str) -> None:
        """`nodes` has a directory for each node, `own` is our own's name. Waits for nobody."""
        self._nodes = nodes
        self._locks: dict[str, int] = {}
        self._take(own)

    def chains(self) -> list[str]:
        """Those that are ours now."""
        for name in os.listdir(self._nodes):
            if name not in self._locks and os.path.isdir(os.path.join(self._nodes, name, "audit")):
                self._take(name)
        return list(self._locks)

    def directory(self, chain: str) -> str:
        return os.path.join(self._nodes, chain, "audit")

    def _take(self, name: str) -> None:
        path = os.path.join(self._nodes, name, OWNER)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._locks[name] = lock
        except OSError:
            os.close(lock)


class Shipper:
    """A thread that sends. `connect` returns a line to the agent that keeps records; it may raise SandboxError."""

    def __init__(self, owned: Ownership, connect: Callable[[], Line]) -> None:
        self._owned = owned
        self._connect = connect
        self._line: Line | None = None
        self._places: dict[str, Following] = {}
        self._refused: set[str] = set()
        self._ended = Event()
        self.problem = ""
        Thread(target=self._run, name="sandbox-shipper", daemon=True).start()

    def close(self) -> None:
        """No more is sent."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                more = self._round()
                self.problem = ""
                pause = 0.0 if more else PAUSE
            except Exception as problem:  # noqa: BLE001 - whatever it was, what was not sent is sent later
                self.problem = f"{type(problem).__name__}: {problem}"
                self._leave()
                pause = LATER
            self._ended.wait(pause)

    def _round(self) -> bool:
        """Sends a piece of each record. Whether there may be more at once."""
        if self._line is None:
            self._line = self._connect()
        more = False
        for chain in self._owned.chains():
            if chain not in self._refused:
                more |= self._send(self._line, chain)
        return more

    def _send(self, line: Line, chain: str) -> bool:
        place = self._places.get(chain)
        try:
            if place is None:
                number = line.ask_json("GET", f"/v1/cluster/records/{chain}")["number"]
                place = self._places[chain] = Following(self._owned.directory(chain), number)
            if not (lines := place.lines()):
                return False
            line.ask("POST", f"/v1/cluster/records/{chain}", lines)
            return True
        except Refused:
            self._refused.add(chain)  # it was changed: the other end knows why, and keeps what was intact
            return False

    def _leave(self) -> None:
        for place in self._places.values():
            place.close()
        self._places.clear()
        if self._line is not None:
            self._line.close()
            self._line = None
