"""Finds the sandbox a request is for: one of the server's own, or another of this user's, by its control socket."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.client import Client
from sandbox.errors import NotFound, SandboxClosed
from sandbox.rpc import methods

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox
    from sandbox.sandboxes import Sandboxes
    from sandbox.server.scopes import Access

KEPT_EVENTS = 500
NAME_FILE = "server-name"

Listener = Callable[[int, dict[str, Any]], object]


class Reached:
    """One running sandbox and its latest events. `sandbox` is a `Sandbox` (ours) or a `Client` (another process's)."""

    def __init__(self, sandbox: Sandbox | Client, name: str = "") -> None:
        self.sandbox = sandbox
        self.id = sandbox.id
        self.name = name
        self._events: deque[tuple[int, dict[str, Any]]] = deque(maxlen=KEPT_EVENTS)
        self._count = 0
        self._listeners: tuple[Listener, ...] = ()
        self._lock = Lock()
        self._unsubscribe = sandbox.on_event(self._heard)

    def call(self, method: str, asked: Any) -> dict[str, Any]:
        """Calls the JSON-RPC method of that name. Raises what the method raises."""
        if isinstance(self.sandbox, Client):
            told: dict[str, Any] = self.sandbox._connection.call(method, msgspec.to_builtins(asked))
            return told
        result = methods.METHODS[method].run(self.sandbox, asked)
        assert isinstance(result, dict)
        return result

    @property
    def walled(self) -> bool:
        """Whether it has walls. Without them, commands and files in it are the host's own."""
        return self.sandbox.engine not in ("none", "")  # "": another process's, which does not say

    @property
    def ended(self) -> bool:
        sandbox = self.sandbox
        return sandbox._connection.ended if isinstance(sandbox, Client) else sandbox._closed

    @property
    def paused(self) -> bool:
        """Whether it is paused. Always False for another process's sandbox, where it is not known."""
        return not isinstance(self.sandbox, Client) and self.sandbox._paused

    def _heard(self, event: dict[str, Any]) -> None:
        with self._lock:
            self._count += 1
            number, listeners = self._count, self._listeners
            self._events.append((number, event))
        for listener in listeners:
            listener(number, event)

    def follow(self, listener: Listener, after: int | None = None) -> Callable[[], None]:
        """Calls `listener` with the kept events after number `after`, then with every new one; in any thread.

        Returns a function that unsubscribes it.
        """
        with self._lock:
            for number, event in self._events:
                if after is not None and number > after:
                    listener(number, event)
            self._listeners = (*self._listeners, listener)

        def end() -> None:
            with self._lock:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

        return end

    def recent(self, count: int) -> list[tuple[int, dict[str, Any]]]:
        """The last events, the oldest first."""
        with self._lock:
            return list(self._events)[-count:]

    def close(self) -> None:
        """Disconnects. The sandbox keeps running."""
        self._unsubscribe()
        if isinstance(self.sandbox, Client):
            self.sandbox.close()


def remember_name(id: str, name: str) -> None:
    """Stores the name in the registry entry, so that it is shown after the sandbox has ended, and after a restart."""
    from sandbox.config.home import home

    try:
        path = os.path.join(home(), "vms", id, NAME_FILE)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(name)
    except OSError:
        pass  # only shown to people; nothing else depends on it


def remembered_name(path: str) -> str:
    """The name of the sandbox with that registry directory. Only for display, never for access decisions."""
    try:
        with open(os.path.join(path, NAME_FILE), encoding="utf-8") as file:
            return file.read(64)
    except (OSError, UnicodeDecodeError):
        return ""


def nobody_holds(id: str) -> bool:
    """The default for `Reach.held`: no sandboxes are kept ready."""
    return False


class Reach:
    """Finds sandboxes by id or name. Thread-safe."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._known: dict[str, Reached] = {}
        self._names: dict[str, str] = {}
        self._claimed: set[str] = set()
        self.held: Callable[[str], bool] = nobody_holds  # whether an id waits in the pool, so nobody may use it yet
        self._lock = Lock()

    def add(self, sandbox: Sandbox, name: str = "") -> Reached:
        """Adds a sandbox that was just created. `name` is free again when the sandbox has ended."""
        reached = Reached(sandbox, name)
        if name:
            remember_name(sandbox.id, name)
        with self._lock:
            self._known[sandbox.id] = reached
            if name:
                self._names[name] = sandbox.id
        return reached

    def claim(self, name: str) -> bool:
        """Reserves a name for a sandbox that is about to start, until `release`. False when it is already taken."""
        with self._lock:
            known = self._known.get(self._names.get(name, ""))
            if name in self._claimed or (known is not None and not known.ended):
                return False
            self._claimed.add(name)
            return True

    def release(self, name: str) -> None:
        with self._lock:
            self._claimed.discard(name)

    def name_of(self, id: str) -> str:
        with self._lock:
            known = self._known.get(id)
        return known.name if known is not None else ""

    def known(self, id: str) -> Reached | None:
        """Like `get`, but only for a running sandbox that is known already. Does not block, and checks no access."""
        with self._lock:
            found = self._known.get(self._names.get(id, id))
        return None if found is None or found.ended else found

    def living(self) -> list[str]:
        """The ids of the known sandboxes that are running or paused."""
        with self._lock:
            return [one.id for one in self._known.values() if not one.ended]

    def get(self, id: str, access: Access) -> Reached:
        """A running sandbox by name or id (which may be shortened).

        Raises NotFound, also when `access` may not reach it, and SandboxClosed when it is not running.
        """
        found = self.known(id)
        if found is None:
            found = self._attach(id, access)
        if not access.reaches(found.id, found.name):
            raise NotFound("no sandbox {wanted!r}; see `sandbox list`", wanted=id)
        return found

    def seen_by(self, access: Access, id: str) -> bool:
        """Whether a token may know of the sandbox of that (whole) id."""
        return access.reaches(id, self.name_of(id))

    def _attach(self, id: str, access: Access) -> Reached:
        from sandbox.config.home import home
        from sandbox.registry.registry import find

        entry = find(home(), self._names.get(id, id), lambda one: not self.held(one) and self.seen_by(access, one))
        known = self.known(entry.id)
        if known is not None:
            return known
        if not entry.running:
            raise SandboxClosed(
                "{id} is {status}; only a running sandbox can be used", id=entry.id, status=entry.status
            )
        reached = Reached(self._sandboxes.get(entry.id))
        with self._lock:
            first = self._known.get(entry.id)
            if first is None or first.ended:
                self._known[entry.id] = reached
                first = reached
        if first is not reached:
            reached.close()
        return first

    def forget_ended(self) -> None:
        with self._lock:
            gone = [one for one in self._known.values() if one.ended]
            for one in gone:
                del self._known[one.id]
                if self._names.get(one.name) == one.id:
                    del self._names[one.name]
        for one in gone:
            one.close()

    def close(self) -> None:
        with self._lock:
            known, self._known = list(self._known.values()), {}
        for one in known:
            one.close()
