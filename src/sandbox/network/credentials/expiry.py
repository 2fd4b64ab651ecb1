"""When a token ends: as answers and programs say it, and as files write it."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any

from sandbox.network.credentials.shapes import jwt_claims

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def end_of(answer: Mapping[str, Any]) -> float | None:
    """When the access token of an answer ends: as it says, or as the token itself does."""
    if answer.get("expires_in") is not None:
        return moment(answer["expires_in"])
    token = answer.get("access_token")
    claims = jwt_claims(token) if isinstance(token, str) else None
    return moment(claims.get("exp")) if claims else None


def written_end(end: float, how: str) -> int | str:
    """A moment as a file writes it: `ms`, `s` or `iso`."""
    if how == "iso":
        return (
            datetime.datetime.fromtimestamp(end, datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        )
    return round(end * 1000) if how == "ms" else round(end)
