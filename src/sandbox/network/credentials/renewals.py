"""What a credential file gets when its tokens are renewed, beside the tokens. Loaded with the first renewal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sandbox.network.credentials.expiry import end_of, written_end
from sandbox.network.credentials.formats import value_at
from sandbox.network.secrets.field_paths import keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.config.model import Credential
    from sandbox.network.secrets.field_paths import Keys


def around(entry: Credential, answer: Mapping[str, Any]) -> dict[tuple[Keys, int], Any]:
    """What else the file says about its tokens: expiry, time of renewal, scope."""
    refresh = entry.refresh
    change: dict[tuple[Keys, int], Any] = {}
    end = end_of(answer)
    if refresh.expires and end is not None:
        change[keys_of(refresh.expires), 0] = written_end(end, refresh.expires_as)
    if refresh.refreshed:
        change[keys_of(refresh.refreshed), 0] = written_end(time.time(), "iso")
    if refresh.scope and isinstance(answer.get("scope"), str):
        change[keys_of(refresh.scope), 0] = answer["scope"].split()
    return change


def newer_there(entry: Credential, text: str, sent: str, answer: Mapping[str, Any]) -> bool:
    """Whether another program has renewed the tokens meanwhile, and its tokens last longer."""
    path = next((one for one, field in entry.tokens.items() if field.kind == "refresh"), None)
    if path is None or entry.refresh.expires is None or not text:
        return False
    there = value_at(text, entry.format, keys_of(path))
    ends = value_at(text, entry.format, keys_of(entry.refresh.expires))
    ours = end_of(answer)
    return (
        isinstance(there, str)
        and there != sent
        and isinstance(ends, int | float)
        and ours is not None
        and ends > _as_number(ours, entry.refresh.expires_as)
    )


def _as_number(end: float, how: str) -> float:
    """An expiry time as a number in the file's unit; infinite when the file does not write it as a number."""
    found = written_end(end, how)
    return float(found) if isinstance(found, int | float) else float("inf")
