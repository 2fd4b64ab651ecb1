"""Tickets for WebSockets from a browser, which cannot set a header: short-lived, good for one connection."""

from __future__ import annotations

import secrets
import time

from sandbox.server.scopes import Access

PROTOCOL = "sandbox.ticket."  # offered as a subprotocol: the only thing of a handshake that a page can choose
LIFETIME = 30.0
_MOST = 1024


class Tickets:
    """Used from the event loop alone."""

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
        """No ticket is good any more."""
        self._valid = {}

    def redeem(self, text: str) -> Access | None:
        """Whose it was; it is void from now on. (A look-up by 192 random bits tells a guesser nothing by its time.)"""
        access, until = self._valid.pop(text, (None, 0.0))
        return access if until > time.monotonic() else None
