"""Sandboxes that a server keeps ready (`sandbox serve --pool N`), for requests that ask for nothing special."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sandbox.errors import SandboxError
from sandbox.pool import late
from sandbox.pool.ready import ReadySandboxes, healthy
from sandbox.pool.shelf import MAX_AGE

if TYPE_CHECKING:
    from collections.abc import Callable

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
        """Whether that sandbox still waits here. Until it is handed out, nobody may use it."""
        return id in self._waiting

    def stats(self) -> PoolStats:
        return self._shelf.stats()

    def close(self) -> None:
        """Ends the waiting sandboxes. Idempotent."""
        self._shelf.close()

    def _build(self) -> Sandbox:
        root = self._workspace("")
        try:
            made = self._sandboxes.create_restricted({}, root)
        except BaseException:
            os.rmdir(root)
            raise
        self._waiting.add(made.id)
        made._lifetime.set(None, None)  # its life begins when it is handed out
        if not healthy(made):
            self._end(made)
            raise SandboxError("a sandbox was built but runs no command; see `sandbox doctor`")
        return made

    def _end(self, sandbox: Sandbox) -> None:
        """Ends a sandbox that was never handed out, and keeps nothing of it."""
        self._sandboxes.forget(sandbox.id)
        self._waiting.discard(sandbox.id)
        sandbox.close()
        with suppress(OSError):
            os.rmdir(sandbox.config.filesystem.root)


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
