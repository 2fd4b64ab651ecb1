"""Managed sandboxes by name. The specification's paths are about the one called `default`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from sandbox.errors import NotFound, SandboxError
from sandbox.manager import states
from sandbox.manager.states import WrongState

if TYPE_CHECKING:
    from sandbox.config.model import Config
    from sandbox.manager.manager import SandboxManager
    from sandbox.sandbox import Sandbox

DEFAULT = "default"


class Managers:
    """All managed sandboxes of a server. Thread-safe."""

    def __init__(self, make: Callable[[str, Mapping[str, Any] | None], SandboxManager]) -> None:
        """`make(name, config)` makes a manager without starting its sandbox."""
        self._make = make
        self._known: dict[str, SandboxManager] = {}
        self._lock = Lock()

    def get(self, name: str = DEFAULT) -> SandboxManager:
        """The manager of that name; the default one is made on first use. Raises NotFound."""
        with self._lock:
            found = self._known.get(name)
            if found is None and name == DEFAULT:
                found = self._known[name] = self._make(name, None)
        if found is None:
            raise NotFound("no managed sandbox {name!r}", name=name)
        return found

    def add(self, name: str, config: Mapping[str, Any]) -> SandboxManager:
        """Makes a manager; replaces a stopped one. Raises SandboxError while one of that name runs, and ConfigError."""
        with self._lock:
            old = self._known.get(name)
            made = self._make(name, config)
            if old is not None:
                _replace(old)
            self._known[name] = made
        return made

    def all(self) -> list[SandboxManager]:
        with self._lock:
            return list(self._known.values())

    def stop_all(self) -> None:
        """Stops all of them at the same time; each takes at most its own patience."""
        from threading import Thread

        stopping = [Thread(target=one.stop) for one in self.all() if one.state != states.UNINITIALIZED]
        for each in stopping:
            each.start()
        for each in stopping:
            each.join()


def _replace(old: SandboxManager) -> None:
    """From now on it starts nothing: a request for it may be under way, and nobody could stop what that starts. Raises
    SandboxError while it runs."""
    with old._changed:
        if old.state not in (states.UNINITIALIZED, states.STOPPED):
            raise SandboxError("the managed sandbox {name!r} is {state}; stop it first", name=old.name, state=old.state)
        old._create = _refuse


def _refuse(_: Config) -> Sandbox:
    raise WrongState("start", "replaced")
