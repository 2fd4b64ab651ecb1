"""What `Sandbox` needs from the layers above it: who serves its socket, and how to reach another one.

`sandbox/__init__.py`, which is imported before any module of the package, sets them. So no module imports one above it,
not even inside a function or by name. `soon` lists what is loaded while a guest builds the walls.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from sandbox.client import Client
    from sandbox.sandbox import Sandbox

    class Listener(Protocol):
        """Serves a sandbox's socket."""

        def close(self) -> None:
            """Accepts no more connections, and no more requests on open ones."""

        def drain(self) -> None:
            """Waits, for a short time, until all who are connected have been sent their last answer."""

    Listen = Callable[[str, Sandbox], Listener]
    Attach = Callable[[str], Client]
    Remote = Callable[..., Client]


class Wiring:
    """Set once, when the package is imported."""

    listen: Listen
    attach: Attach
    remote: Remote

    #: What the first command needs and the walls do not. The guest needs 3 ms to build the walls, and this process has
    #: nothing else to do then: where there are two processors, loading these modules costs a start nothing.
    soon: tuple[str, ...] = ()

    @classmethod
    def load_soon(cls) -> None:
        """Imports what is needed soon, once."""
        names, cls.soon = cls.soon, ()
        for name in names:
            __import__(name)
