"""No walls: mode `off`. The same guest, started as it is, so that everything but the walls behaves the same."""

from __future__ import annotations

from sandbox.engines.base import Engine, Finding, Plan, Running
from sandbox.engines.launch import Launch
from sandbox.engines.local import stand
from sandbox.errors import EngineUnavailable, WallError
from sandbox.guest.binary import guest_binary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class NoWalls(Engine):
    name = "none"

    def open(self, arrange: Callable[[], Plan]) -> Running:
        return stand(lambda: Launch([guest_binary()]), arrange, lambda said: WallError(f"the guest ended: {said}"))

    def findings(self) -> list[Finding]:
        try:
            return [Finding("guest program", True, guest_binary())]
        except EngineUnavailable as problem:
            return [Finding("guest program", False, str(problem))]
