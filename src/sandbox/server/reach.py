"""The sandboxes that requests are about: the server's own, and every other one of this user by its control socket."""

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
    """One running sandbox, held as `Sandbox` (ours) or `Client` (another process's), and its latest events."""

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
        """The JSON-RPC method of that name, with its own parameters. Raises what it raises."""
        if isinstance(self.sandbox, Client):
            told: dict[str, Any] = self.sandbox._connection.call(method, msgspec.to_builtins(asked))
            return told
        result = methods.METHODS[method].run(self.sandbox, asked)
        assert isinstance(result, dict)
        return result

    @property
    def ended(self) -> bool:
        sandbox = self.sandbox
        return sandbox._connection.ended if isinstance(sandbox, Client) else sandbox._closed

    @property
    def paused(self) -> bool:
        """Whether it is known to be paused; of another process's sandbox nobody tells."""
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

        Returns what ends that.
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
        """Leaves; a sandbox of our own goes on living."""
        self._unsubscribe()
        if isinstance(self.sandbox, Client):
            self.sandbox.close()


def remember_name(id: str, name: str) -> None:
    """Keeps it beside what the registry knows, so that it is shown when the sandbox has ended, and after a restart."""
    from sandbox.config.home import home

    try:
        path = os.path.join(home(), "vms", id, NAME_FILE)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(name)
    except OSError:
        pass  # it is for people to read, and nothing else depends on it


def remembered_name(path: str) -> str:
    """The name that the sandbox with that directory in the registry had. Never for deciding who may do what."""
    try:
        with open(os.path.join(path, NAME_FILE), encoding="utf-8") as file:
            return file.read(64)
    except (OSError, UnicodeDecodeError):
        return ""


def nobody_holds(id: str) -> bool:
    """Without sandboxes that are kept ready."""
    return False


class Reach:
    """Finds sandboxes by id or name. Safe to use from many threads."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._known: dict[str, Reached] = {}
        self._names: dict[str, str] = {}
        self._claimed: set[str] = set()
        self.held: Callable[[str], bool] = nobody_holds  # ids that are nobody's to use yet
        self._lock = Lock()

    def add(self, sandbox: Sandbox, name: str = "") -> Reached:
        """A sandbox that was just created. `name` is free again when its sandbox has ended."""
        reached = Reached(sandbox, name)
        if name:
            remember_name(sandbox.id, name)
        with self._lock:
            self._known[sandbox.id] = reached
            if name:
                self._names[name] = sandbox.id
        return reached

    def claim(self, name: str) -> bool:
        """Holds a name for a sandbox that is about to start, until `release`. False when another has or claims it."""
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
        """The same, when it is held already: without waiting."""
        with self._lock:
            found = self._known.get(self._names.get(id, id))
        return None if found is None or found.ended else found

    def living(self) -> list[str]:
        """The ids of those that are held, and run or are paused."""
        with self._lock:
            return [one.id for one in self._known.values() if not one.ended]

    def get(self, id: str, access: Access) -> Reached:
        """A running sandbox by name or id (which may be shortened). Raises NotFound, also where access has no reach."""
        found = self.known(id)
        if found is None:
            found = self._attach(id)
        if not access.reaches(found.id, found.name):
            raise NotFound("no sandbox {wanted!r}; see `sandbox list`", wanted=id)
        return found

    def _attach(self, id: str) -> Reached:
        from sandbox.config.home import home
        from sandbox.registry.registry import find

        entry = find(home(), self._names.get(id, id))
        if self.held(entry.id):
            raise NotFound("no sandbox {wanted!r}; see `sandbox list`", wanted=id)
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
