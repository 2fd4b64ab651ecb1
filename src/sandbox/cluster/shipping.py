"""Sends this machine's records to the agent that keeps them all, as they are written.

Only the other end knows how far a record was sent: after a restart of either process it is asked, and the rest is sent.
The record of an agent that is gone for good is sent by the next agent of the same machine. A record that no longer has
what was kept of it was rolled back or replaced: the other end notes that, and keeps what there is now under a new name.
"""

from __future__ import annotations

import fcntl
import os
from threading import Event, Thread
from typing import TYPE_CHECKING

from sandbox.audit.following import Following, still_has
from sandbox.cluster.line import AgentRefused, Line

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE = 0.5  # seconds between two looks at what was written
LATER = 2.0  # seconds before the next attempt after a failure
OWNER = "owner"  # a file that an agent keeps locked while it lives
INVALID = 400  # the status for lines that do not belong to the record


class Ownership:
    """Which records of a machine this agent sends: its own, and those of agents that have ended."""

    def __init__(self, nodes: str, own: str, ended: Callable[[str], object] = lambda home: None) -> None:
        """`nodes` has a directory for each node; `own` is the name of this agent's. Waits for no lock.

        `ended` is called with the directory of another agent, once it has ended.
        """
        self._nodes = nodes
        self._ended = ended
        self._locks: dict[str, int] = {}
        self._take(own)

    def chains(self) -> list[str]:
        """The records that this agent sends now."""
        for name in os.listdir(self._nodes):
            if name not in self._locks and os.path.isdir(os.path.join(self._nodes, name, "audit")):
                self._take(name)
                if name in self._locks:
                    self._ended(os.path.join(self._nodes, name))
        return list(self._locks)

    def directory(self, chain: str) -> str:
        return os.path.join(self._nodes, chain, "audit")

    def close(self) -> None:
        """Lets others send them."""
        while self._locks:
            os.close(self._locks.popitem()[1])

    def _take(self, name: str) -> None:
        path = os.path.join(self._nodes, name, OWNER)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._locks[name] = lock
        except OSError:
            os.close(lock)


class Shipper:
    """A thread that sends. `connect` connects to the agent that keeps records; it may raise SandboxError."""

    def __init__(self, owned: Ownership, connect: Callable[[], Line]) -> None:
        self._owned = owned
        self._connect = connect
        self._line: Line | None = None
        self._places: dict[str, tuple[str, Following]] = {}  # under which name each is kept, and how far it was sent
        self._refused: set[str] = set()
        self._told: dict[str, str] = {}  # what is wrong with a record, by its name
        self._ended = Event()
        self._failure = ""
        Thread(target=self._run, name="sandbox-shipper", daemon=True).start()

    @property
    def problem(self) -> str:
        """What keeps the records from being sent, and what is wrong with them; or ""."""
        return "; ".join(one for one in (self._failure, *self._told.copy().values()) if one)

    def close(self) -> None:
        """Sends no more."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                more = self._round()
                self._failure = ""
                pause = 0.0 if more else PAUSE
            except Exception as problem:  # noqa: BLE001 - whatever failed, the rest is sent later
                self._failure = f"{type(problem).__name__}: {problem}"
                self._leave()
                pause = LATER
            self._ended.wait(pause)
        self._leave()
        self._owned.close()

    def _round(self) -> bool:
        """Sends a piece of each record. Returns whether there may be more to send at once."""
        if self._line is None:
            self._line = self._connect()
        more = False
        for chain in self._owned.chains():
            if chain not in self._refused:
                more |= self._send(self._line, chain)
        return more

    def _send(self, line: Line, chain: str) -> bool:
        try:
            if chain not in self._places:
                self._places[chain] = self._place(line, chain)
            name, place = self._places[chain]
            if lines := place.lines():
                line.ask("POST", f"/v1/cluster/records/{name}", lines)
            elif place.went_back():
                self._places.pop(chain)[1].close()  # it is asked again where to go on
            return bool(lines)
        except AgentRefused as refused:
            if refused.status != INVALID:
                raise  # the token has expired, or the disk is full: connect again later, with a new token
            return self._was_refused(line, chain, str(refused))

    def _place(self, line: Line, chain: str) -> tuple[str, Following]:
        """Under which name a record is kept, and where it goes on."""
        directory, name = self._owned.directory(chain), chain
        while True:
            kept = line.ask_json("GET", f"/v1/cluster/records/{name}")
            if not kept["next"]:
                if still_has(directory, kept["number"], kept["digest"]):
                    return name, Following(directory, kept["number"])
                kept["next"] = line.ask_json("POST", f"/v1/cluster/records/{name}/replaced")["chain"]
            name = kept["next"]
            self._told[chain] = f"the record {chain} was rolled back or replaced; it is kept as {name} now"

    def _was_refused(self, line: Line, chain: str, problem: str) -> bool:
        """A record that was made anew goes on under another name. Otherwise it was altered: what was intact is kept."""
        name, place = self._places.pop(chain, (chain, None))
        if place is not None:
            place.close()
            kept = line.ask_json("GET", f"/v1/cluster/records/{name}")
            if not still_has(self._owned.directory(chain), kept["number"], kept["digest"]):
                return True  # `_place` notices that
        self._refused.add(chain)
        self._told[chain] = problem
        return False

    def _leave(self) -> None:
        for _, place in self._places.values():
            place.close()
        self._places.clear()
        if self._line is not None:
            self._line.close()
            self._line = None
