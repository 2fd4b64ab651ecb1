"""Tickets for WebSockets opened by a browser, which cannot set headers on them: short-lived, for one connection."""

from __future__ import annotations

import secrets
import time

from sandbox.server.scopes import Access

PROTOCOL = "sandbox.ticket."  # offered as a subprotocol: the only part of the handshake that a page controls
LIFETIME = 30.0
_MOST = 1024


class Tickets:
    """Used only from the event loop."""

    def __init__(self) -> None:
        self._valid: dict[str, tuple[Access, float]] = {}

    def new(self, access: Access) -> str:
        now = time.monotonic()
        self._valid = {text: one for text, one in self._valid.items() if one[1] > now}
        while len(self._valid) >= _MOST:
            del self._valid[next(iter(self._valid))]
        text = secrets.token_urlsafe(24)
        self._valid[text] = (access, now + LIFETIME)
        return text

    def void(self) -> None:
        """Invalidates every ticket."""
        self._valid = {}

    def redeem(self, text: str) -> Access | None:
        """The access that the ticket stands for, which is used up now; None if it is not valid.

        (A dictionary look-up is safe here: with 192 random bits, its timing tells a guesser nothing.)
        """
        access, until = self._valid.pop(text, (None, 0.0))
        return access if until > time.monotonic() else None
