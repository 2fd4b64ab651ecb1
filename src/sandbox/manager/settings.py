"""How a manager watches its sandbox, and when it gives up."""

from __future__ import annotations

import msgspec


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times are in seconds. A sandbox is degraded after `failures` failed checks in a row; then up to `attempts`
    recoveries follow."""

    interval: float = 15.0
    patience: float = 5.0
    failures: int = 3
    auto_recover: bool = True
    attempts: int = 5
    first_pause: float = 1.0
    longest_pause: float = 60.0
    end_patience: float = 10.0

    def backoff(self, attempt: int) -> float:
        """How long to wait before an attempt: twice as long each time, up to `longest_pause`."""
        return 0.0 if attempt == 0 else min(self.longest_pause, self.first_pause * 2.0 ** (attempt - 1))

    @property
    def longest_end(self) -> float:
        """The longest that ending a sandbox can take, with all its steps."""
        return 3 * self.end_patience + 5.0
