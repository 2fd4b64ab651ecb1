"""Which secrets were put into a request and taken out of its response: by name, for the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SecretUses:
    """The uses of secrets in one exchange. `report(direction, name)` is called once for each secret and direction.

    What was put in is reported when the request is sent: until then it can be refused.
    """

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self._reported: set[tuple[str, str]] = set()
        self._waiting: list[str] = []
        self._is_sent = False

    def put_in(self, name: str) -> None:
        """A value was put into the request."""
        if self._is_sent:
            self._once("outbound", name)
        else:
            self._waiting.append(name)

    def sent(self) -> None:
        """The request is sent from now on."""
        self._is_sent = True
        for name in self._waiting:
            self._once("outbound", name)
        self._waiting = []

    def taken_out(self, name: str) -> None:
        """A value was replaced in the response."""
        self._once("inbound", name)

    def _once(self, direction: str, name: str) -> None:
        if (direction, name) not in self._reported:
            self._reported.add((direction, name))
            self._report(direction, name)


def ignored() -> SecretUses:
    """For requests that are in nobody's exchange."""
    return SecretUses(lambda direction, name: None)
