"""Sandboxes that a server keeps ready (`sandbox serve --pool N`), for requests that ask for nothing special."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from sandbox.config.home import home
from sandbox.errors import SandboxError
from sandbox.pool import late
from sandbox.pool.ready import ReadySandboxes, healthy
from sandbox.pool.shelf import MAX_AGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox.pool.shelf import PoolStats
    from sandbox.sandbox import Sandbox
    from sandbox.sandboxes import Sandboxes


class Ready:
    """A pool of sandboxes. Each has its own workspace and the owner's configuration, without any request's settings."""

    def __init__(self, sandboxes: Sandboxes, workspace: Callable[[str], str], size: int) -> None:
        self._sandboxes = sandboxes
        self._workspace = workspace
        self._shelf = _Shelf(self._build, size, MAX_AGE)
        self._shelf.end = self._end
        self._waiting: set[str] = set()
        self._building = 0
        self._counting = Lock()
        self._shelf.start()

    def take(self, config: dict[str, Any], *, widened: bool) -> Sandbox | None:
        """A ready sandbox that fits `config`; None when one must be built for it.

        `widened`: the caller may set variables and secrets. Raises what `Sandbox` raises.
        """
        given = asked(config)
        if given is None or (not widened and any(given.values())):
            return None
        sandbox = self._shelf.take()
        self._waiting.discard(sandbox.id)
        try:
            late.give(sandbox, given["secrets"], late.checked(given["environment"]))
        except BaseException:
            self._end(sandbox)
            raise
        return sandbox

    def holds(self, id: str) -> bool:
        """Whether that sandbox still waits here, or is being built to. Until it is handed out, nobody may use it."""
        return id in self._waiting or (self._building > 0 and not self._sandboxes.owns(id) and _of_this_process(id))

    def stats(self) -> PoolStats:
        return self._shelf.stats()

    def close(self) -> None:
        """Ends the waiting sandboxes. Idempotent."""
        self._shelf.close()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._counting:
            self._building += 1
        try:
            yield
        finally:
            with self._counting:
                self._building -= 1

    def _build(self) -> Sandbox:
        root = self._workspace("")
        try:
            with self._counted():
                made = self._sandboxes.create_restricted({}, root, before=self._waiting.add)
        except BaseException:
            os.rmdir(root)
            raise
        made._lifetime.set(None, None)  # its life begins when it is handed out
        if not healthy(made):
            self._end(made)
            raise SandboxError("a sandbox was built but runs no command; see `sandbox doctor`")
        return made

    def _end(self, sandbox: Sandbox) -> None:
        """Ends a sandbox that was never handed out, and keeps nothing of it."""
        self._sandboxes.forget(sandbox.id)
        sandbox.close()
        self._waiting.discard(sandbox.id)  # not before it has ended: nobody else may use it meanwhile
        with suppress(OSError):
            os.rmdir(sandbox.config.filesystem.root)


def _of_this_process(id: str) -> bool:
    """Whether that sandbox runs, or is being built, in this process."""
    try:
        with open(os.path.join(home(), "vms", id, "pid"), encoding="ascii") as file:
            return file.readline().strip() == str(os.getpid())
    except (OSError, ValueError):
        return False  # it has ended


class _Shelf(ReadySandboxes):
    end: Callable[[Sandbox], None]

    def _end(self, one: Sandbox) -> None:
        self.end(one)


def asked(config: dict[str, Any]) -> dict[str, Any] | None:
    """The secrets and variables in a request; None when it asks for anything else."""
    known = {"environment": "set", "network": "secrets"}
    for section, value in config.items():
        if section not in known or not isinstance(value, dict) or set(value) - {known[section]}:
            return None
    secrets = (config.get("network") or {}).get("secrets")
    variables = (config.get("environment") or {}).get("set")
    return {"secrets": secrets, "environment": variables}
