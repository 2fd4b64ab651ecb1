"""Parses expiry times as programs and files write them."""

from __future__ import annotations

import datetime
import time

_MILLISECONDS = 10**11  # seconds until the year 5138: a larger number counts milliseconds
_MOMENT = 10**9  # a smaller number is a time to live, not a moment


def moment(said: object) -> float | None:
    """A moment in seconds since 1970, from a number (seconds, milliseconds, or seconds from now) or ISO 8601."""
    if isinstance(said, str):
        try:
            return moment(float(said))
        except ValueError:
            pass
        try:
            when = datetime.datetime.fromisoformat(said)
        except ValueError:
            return None
        return (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp()
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said < 10**16:
        return None
    if said < _MOMENT:
        return time.time() + said
    return said / 1000 if said > _MILLISECONDS else float(said)
