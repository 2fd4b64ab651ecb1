"""Sandboxes that wait in a pool: complete and checked, with a lifetime that has not begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.errors import CommandError, SandboxError
from sandbox.pool.shelf import Shelf
from sandbox.sandbox import Sandbox, with_launcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox.config.from_program import Given
    from sandbox.engines.base import Started

PATIENCE = 10.0  # seconds that a check may take
CATCHING_UP = 5.0  # seconds for covering what has appeared while it waited


class ReadySandboxes(Shelf[Sandbox]):
    """Those that wait to be handed out."""

    def _alive(self, one: Sandbox) -> bool:
        return not one._closed and one._running.alive()

    def _healthy(self, one: Sandbox) -> bool:
        return healthy(one)

    def _hand_out(self, one: Sandbox) -> bool:
        return one._guard.catch_up(CATCHING_UP)

    def _end(self, one: Sandbox) -> None:
        one.close()


def build(
    config: Given,
    *,
    hooks: object | None,
    resolve: Callable[[str, int], Sequence[str]] | None,
    launcher: Started | None = None,
) -> Sandbox:
    """A sandbox. Without `launcher`, it is one to wait in the pool: a command is run in it as a check, which also loads
    what its first real command needs. Raises what `Sandbox` raises."""
    made = with_launcher(launcher, config, hooks=hooks, resolve=resolve)
    if launcher is None:
        try:
            made._lifetime.set(None, None)  # its lifetime begins when it is handed out
            if not healthy(made):
                raise SandboxError("a sandbox was built but runs no command; see `sandbox doctor`")
            made._guard.catch_up(CATCHING_UP)  # begins to watch now, not when somebody takes it
        except BaseException:
            made.close()
            raise
    return made


def healthy(sandbox: Sandbox) -> bool:
    """Whether it can run a command. A missing shell is fine: the guest has answered, and that is the question."""
    try:
        return not sandbox.exec(["/bin/sh", "-c", "exit 0"], timeout=PATIENCE).timed_out
    except CommandError:
        return True
    except (SandboxError, OSError):
        return False
