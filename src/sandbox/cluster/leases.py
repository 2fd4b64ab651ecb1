"""Leases: each is a token for one sandbox of an agent, and ends with it. What the sandbox left on disk goes too."""

from __future__ import annotations

import fcntl
import os
import re
import time
from threading import Lock
from typing import TYPE_CHECKING

from sandbox.errors import InvalidArgument, NotFound, SandboxError
from sandbox.registry.registry import find
from sandbox.registry.remove import prune, remove_entry
from sandbox.server.scopes import LEASE
from sandbox.server.server import CREATING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.server.server import Server

SCOPES = frozenset(("read", "create", "exec", "files", "apply", "network", "answer", "kill", "host"))
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
UNUSED = 60.0  # seconds within which a lease must be used
ALIVE = "alive"  # a file that an agent keeps locked while it lives
HELD = 10.0  # seconds


class Leases:
    """The leases of one agent. Safe to use from many threads."""

    def __init__(self, server: Server, home: str, cut: Callable[[str], object] = lambda lease: None) -> None:
        """`cut` ends the connections of a lease that has ended."""
        self._server, self._home, self._cut = server, home, cut
        self._used: dict[str, float] = {}
        self._projects: dict[str, list[str]] = {}  # directories that were made for a lease, by its token's id
        self._lock = Lock()

    def new(self, holder: str) -> tuple[str, str]:
        """A lease. Returns its token's text and id.

        Only routes of the surface LEASE accept the token, and only from who has the certificate of the digest `holder`.
        It reaches no sandbox until it has created its own.
        """
        if not _DIGEST.match(holder):
            raise InvalidArgument("a lease needs the digest of its holder's certificate")
        with self._lock:
            text, token = self._server.tokens.new(SCOPES, name="lease", passing=True, surface=LEASE, holder=holder)
            self._server.leases[token.id] = ""
            self._used[token.id] = time.monotonic()
        return text, token.id

    def use(self, token: str, project: str | None = None) -> None:
        """Call when a lease is used before its sandbox exists; `project` is a directory that was made for it.

        Raises NotFound when the lease has ended meanwhile; then the project is removed.
        """
        with self._lock:
            if token in self._used:
                self._used[token] = time.monotonic()
                if project is not None:
                    self._projects.setdefault(token, []).append(project)
                return
        if project is not None:
            remove_entry(project)
        raise NotFound("the lease has ended")

    def release(self, token: str) -> None:
        """Ends a lease, unless its sandbox lives. Idempotent."""
        with self._lock:
            self._server.tokens.forget(token)
            if token in self._used:
                self._used[token] = float("-inf")
        self._end(token)

    def ended(self, token: str) -> None:
        """Call when a connection has ended that could make a sandbox: the lease ends, unless there is one."""
        with self._lock:
            if token in self._used:
                self._used[token] = float("-inf")
        self._end(token)

    def sweep(self) -> None:
        """Forgets leases that were not used in time, and those whose sandbox has ended, with their files."""
        with self._lock:
            all = list(self._used)
        self._end(*all)
        self._server.reach.forget_ended()
        self._server.sandboxes.running()  # forgets those that have ended

    def _end(self, *tokens: str) -> None:
        """Ends those of these leases that are over, and removes what was made for them."""
        with self._lock:
            known = [token for token in tokens if token in self._used and self._over(token)]
            over = [(token, self._server.leases.get(token, "")) for token in known]
            gone = [(token, id) for token, id in over if self._server.end_lease(token)]
            projects = [(id, self._projects.pop(token, [])) for token, id in gone]
            for token, _ in gone:
                del self._used[token]
        for token, _ in gone:
            self._cut(token)
        for id, made in projects:
            self._remove(id, made)

    def _over(self, token: str) -> bool:
        sandbox = self._server.leases.get(token, "")
        if sandbox == CREATING:
            return False
        if sandbox:
            return self._server.reach.known(sandbox) is None
        return time.monotonic() > self._used[token] + UNUSED

    def _remove(self, id: str, projects: list[str]) -> None:
        """Removes what a sandbox left: its entry with its overlay, its project, or the directory it was given."""
        if id:
            try:
                entry = find(self._home, id)
                root = str(entry.config.get("filesystem", {}).get("root", ""))
                remove_entry(entry.path)
                projects = [*projects, root]
            except (NotFound, OSError, SandboxError):
                pass  # it is gone already
        above = workspaces(self._home)
        for one in {one for one in projects if os.path.dirname(one) == above and os.path.isdir(one)}:
            remove_entry(one)


def workspaces(home: str) -> str:
    """Where a server puts the directories of sandboxes that were given none: see `Server.workspace`."""
    return f"{home}-workspaces"


def hold(home: str, patience: float = HELD) -> int:
    """Marks an agent's directory as that of a living agent, until the descriptor is closed or the process ends.

    It waits while another agent removes what the last one left there, for `patience` seconds at most. Raises
    SandboxError when an agent lives there: what one removes may be the other's.
    """
    lock = os.open(os.path.join(home, ALIVE), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError as problem:
            if time.monotonic() > until:
                os.close(lock)
                raise SandboxError("another agent uses {directory}", directory=home) from problem
            time.sleep(0.05)


def clean_ended(home: str) -> None:
    """The same as `clean` for another agent's directory, unless an agent lives there (again)."""
    lock = os.open(os.path.join(home, ALIVE), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        clean(home)
    except OSError:
        pass  # somebody lives there, and cleans up alone
    finally:
        os.close(lock)


def clean(home: str) -> None:
    """Removes what the sandboxes of an agent that has ended left; its record stays."""
    prune(home, changes_too=True)
    above = workspaces(home)
    if os.path.isdir(above):
        for name in os.listdir(above):
            remove_entry(os.path.join(above, name))
