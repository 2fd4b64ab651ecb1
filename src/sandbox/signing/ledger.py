"""What was asked and signed: one SQLite file that all processes share and that outlives them.

A signature is claimed before it is made: one transaction counts the history, asks the policy and writes the claim. A
second request therefore counts the first. A claim that was never used, because a process died, still counts.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, NamedTuple

from sandbox.errors import SandboxError
from sandbox.policy.signing.checks import Count, History
from sandbox.signing.clock import Clock, Moment

HOUR, DAY = 3600.0, 86400.0
PATIENCE = 10.0  # seconds to wait for another process's transaction
# claimed: a signature may exist. signed: it does. The others: it does not, but the id is used up.
PENDING, CLAIMED, SIGNED, FAILED, REJECTED, EXPIRED = "pending", "claimed", "signed", "failed", "rejected", "expired"
_COUNTED = (CLAIMED, SIGNED, FAILED)

_TABLES = """
CREATE TABLE IF NOT EXISTS requests (
    id TEXT PRIMARY KEY, asker TEXT NOT NULL, sandbox TEXT NOT NULL, family TEXT NOT NULL, kind TEXT NOT NULL,
    hash TEXT NOT NULL, destination TEXT NOT NULL, cost TEXT NOT NULL, state TEXT NOT NULL, payload TEXT, shown TEXT,
    signature TEXT, reason TEXT, decided_by TEXT, asked_at REAL NOT NULL, claimed_at REAL, expires_at REAL
) STRICT;
CREATE INDEX IF NOT EXISTS by_claim ON requests (claimed_at);
CREATE INDEX IF NOT EXISTS by_state ON requests (state);
CREATE TABLE IF NOT EXISTS moment (one INTEGER PRIMARY KEY CHECK (one = 1), now REAL, boot TEXT, uptime REAL) STRICT;
"""


class Row(NamedTuple):
    """One request, as it is kept. `payload` is dropped when it is decided.

    `family` is what a sandbox's limits are counted for: the first sandbox in a line of forks.
    """

    id: str
    asker: str
    sandbox: str
    family: str
    kind: str
    hash: str
    destination: str
    cost: str
    state: str
    payload: str | None
    shown: str | None
    signature: str | None
    reason: str | None
    decided_by: str | None
    asked_at: float
    claimed_at: float | None
    expires_at: float | None


_COLUMNS = ", ".join(Row._fields)


class Ledger:
    """Safe to use from many threads and processes. Raises SandboxError when the file cannot be used."""

    def __init__(self, path: str, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or Clock()
        self._lock = RLock()
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            # Made by us before SQLite opens it, and not a link: SQLite gives its other files the same mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            os.chmod(path, 0o600)
            self._base = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            self._switch_to_wal()
            self._base.executescript(_TABLES)
            self._migrate()
        except (OSError, sqlite3.Error) as problem:
            raise SandboxError(
                "cannot use the signing ledger {path}: {problem}", path=path, problem=problem
            ) from problem

    def _switch_to_wal(self) -> None:
        """Readers do not stop writers then. SQLite does not wait for another process that is doing the same: we do."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._base.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def _migrate(self) -> None:
        """Upgrades a ledger from before forks shared their origin's counts."""
        self._base.execute("BEGIN IMMEDIATE")  # another process may be about to do the same
        columns = {row[1] for row in self._base.execute("PRAGMA table_info(requests)")}
        if "family" not in columns:
            self._base.execute("ALTER TABLE requests ADD COLUMN family TEXT NOT NULL DEFAULT ''")
            self._base.execute("UPDATE requests SET family = sandbox")
        self._base.execute("COMMIT")

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Transaction]:
        """No other thread or process writes meanwhile. An exception undoes it all.

        A claim must be on disk before anything is signed. Its outcome need not be: after a crash the claim is there.
        """
        with self._lock:
            try:
                self._base.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._base.execute("BEGIN IMMEDIATE")
                try:
                    yield Transaction(self._base, self._now())
                except BaseException:
                    self._base.execute("ROLLBACK")
                    raise
                self._base.execute("COMMIT")
            except sqlite3.Error as problem:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise SandboxError(
                    "cannot use the signing ledger {path}: {problem}", path=self.path, problem=problem
                ) from problem

    def _now(self) -> float:
        found = self._base.execute("SELECT now, boot, uptime FROM moment").fetchone()
        moment = self._clock.after(None if found is None else Moment(*found))
        self._base.execute("INSERT OR REPLACE INTO moment VALUES (1, ?, ?, ?)", moment)
        return moment.now

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._base.close()


class Transaction:
    """One transaction on the ledger. `now` is the ledger's time."""

    def __init__(self, base: sqlite3.Connection, now: float) -> None:
        self._base = base
        self.now = now

    def find(self, id: str) -> Row | None:
        found = self._base.execute(f"SELECT {_COLUMNS} FROM requests WHERE id = ?", (id,)).fetchone()
        return None if found is None else Row(*found)

    def history(self, family: str, destination: str, *, used: bool) -> History:
        """What counts against a request of that family for that destination."""
        return History(
            used, self._count("1 = 1", ()), self._count("family = ?", (family,)),
            self._count("destination = ?", (destination,)),
        )  # fmt: skip

    def _count(self, where: str, values: tuple[str, ...]) -> Count:
        rows = self._base.execute(
            f"SELECT claimed_at, cost FROM requests WHERE claimed_at > ? AND state IN (?, ?, ?) AND {where}",
            (self.now - DAY, *_COUNTED, *values),
        ).fetchall()
        hour = sum(1 for at, _ in rows if at > self.now - HOUR)
        return Count(hour, len(rows), sum(int(cost) for _, cost in rows))

    def add(self, **values: Any) -> None:
        """A new request. Raises SandboxError when its id is there."""
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        self._base.execute(f"INSERT INTO requests ({names}) VALUES ({marks})", tuple(values.values()))

    def change(self, id: str, before: str, **values: Any) -> bool:
        """Changes a request that is in the state `before`. False when it is not."""
        sets = ", ".join(f"{name} = ?" for name in values)
        done = self._base.execute(
            f"UPDATE requests SET {sets} WHERE id = ? AND state = ?", (*values.values(), id, before)
        )
        return done.rowcount == 1

    def expire(self) -> list[Row]:
        """Ends those that waited too long, and returns them."""
        found = self._base.execute(
            f"SELECT {_COLUMNS} FROM requests WHERE state = ? AND expires_at <= ?", (PENDING, self.now)
        ).fetchall()
        rows = [Row(*one) for one in found]
        for row in rows:
            self.change(row.id, PENDING, state=EXPIRED, payload=None)
        return rows

    def pending(self, asker: str | None = None) -> list[Row]:
        """Those that wait for a person, the oldest first."""
        found = self._base.execute(
            f"SELECT {_COLUMNS} FROM requests WHERE state = ? AND expires_at > ? ORDER BY asked_at",
            (PENDING, self.now),
        ).fetchall()
        return [row for row in (Row(*one) for one in found) if asker is None or row.asker == asker]
