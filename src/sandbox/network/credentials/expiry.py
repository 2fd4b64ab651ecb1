"""When a token expires: as answers and programs state it, and as files write it."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from sandbox.network.credentials.token_shapes import jwt_claims
from sandbox.network.secrets.parse_time import moment

if TYPE_CHECKING:
    from collections.abc import Mapping


def end_of(answer: Mapping[str, Any]) -> float | None:
    """When the access token in an answer expires, according to the answer or to the token itself."""
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
