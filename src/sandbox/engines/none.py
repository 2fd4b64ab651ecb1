"""No walls: mode `off`. The same guest, started directly, so that everything but the walls behaves the same."""

from __future__ import annotations

from sandbox.engines.base import Capabilities, Engine, Finding
from sandbox.engines.launch import Launch
from sandbox.engines.local import LocalStart
from sandbox.errors import EngineUnavailable, WallError, message_of
from sandbox.guest.binary import guest_binary


class NoWalls(Engine):
    name = "none"
    can = Capabilities(walls=False, limits=True)

    def start(self) -> LocalStart:
        return LocalStart(Launch([guest_binary()]), lambda said: WallError("the guest ended: {said}", said=said))

    def findings(self) -> list[Finding]:
        try:
            return [Finding("guest program", True, guest_binary())]
        except EngineUnavailable as problem:
            return [Finding("guest program", False, message_of(problem))]
