"""Stops the tenants of a sandbox when names appear faster than they can be looked at."""

from __future__ import annotations

from sandbox.errors import Message, SandboxClosed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.guards.late_covers import Tenants

BEHIND = 2048  # names in the queue: from here on, tenants are stopped
TRIES = 3  # at stopping them, of a second or two each

UNSTOPPABLE = Message(
    "names appear in the project faster than the blocked ones among them can be hidden, and the programs inside cannot "
    "be stopped meanwhile"
)


class Pace:
    """Stops them until none is left to look at."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._behind = 0  # how many waited when tenants were stopped

    def keep(self, waiting: int, *, lost: bool) -> None:
        """`waiting`: names that have not been looked at; `lost`: there were others, which nobody knows."""
        if waiting <= max(BEHIND, self._behind) and not lost:
            return
        self._tenants.let_go()  # if they are stopped, this is about others, which the owner has started since
        self._behind = waiting
        for turn in range(TRIES):
            try:
                return self._tenants.stop()
            except SandboxClosed:
                return
            except OSError:
                if turn == TRIES - 1:
                    self._tenants.end(UNSTOPPABLE)

    def caught_up(self) -> None:
        self._behind = 0
        self._tenants.let_go()
