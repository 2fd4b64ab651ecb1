"""Filters and pages of a listing of sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from sandbox.server.e2b.refusals import E2bRefusal

PAGE = 100
STATES = ("running", "paused")


class Filter(msgspec.Struct, kw_only=True):
    """What a client wants to see. `after` is where the last page ended."""

    states: frozenset[str] = frozenset(STATES)
    metadata: dict[str, str] = {}
    template: str | None = None
    since: datetime | None = None
    oldest_first: bool = False
    limit: int = PAGE
    after: tuple[str, str] | None = None

    @classmethod
    def read(cls, asked: Mapping[str, Any]) -> Filter:
        """Reads the query of a request. Raises E2bRefusal."""
        states = frozenset(asked.get("state", ",".join(STATES)).split(","))
        if not states <= set(STATES):
            raise E2bRefusal(400, "state is running, paused, or both")
        limit = asked.get("limit", str(PAGE))
        if not (limit.isdecimal() and 1 <= len(limit) < 6 and int(limit) > 0):
            raise E2bRefusal(400, "limit is a number above 0")
        if asked.get("order", "desc") not in ("asc", "desc"):
            raise E2bRefusal(400, "order is asc or desc")
        return cls(
            states=states,
            metadata=_metadata(asked.get("metadata", "")),
            template=asked.get("template"),
            since=_moment(asked.get("startedAfter")),
            oldest_first=asked.get("order") == "asc",
            limit=min(int(limit), PAGE),
            after=_after(asked.get("nextToken")),
        )

    def has(self, told: dict[str, Any]) -> bool:
        """Whether a sandbox matches."""
        started = datetime.fromisoformat(told["startedAt"])
        return (
            told["state"] in self.states
            and self.metadata.items() <= told["metadata"].items()
            and self.template in (None, told["templateID"])
            and (self.since is None or started >= self.since)
        )


def _metadata(text: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(text[:16_384], keep_blank_values=True, max_num_fields=100))
    except ValueError:
        raise E2bRefusal(400, "metadata has at most 100 fields") from None


def page(found: list[dict[str, Any]], wanted: Filter) -> tuple[list[dict[str, Any]], str | None]:
    """One page, and the token for the next one; None on the last page."""

    def place(told: dict[str, Any]) -> tuple[str, str]:
        return told["startedAt"], told["sandboxID"]

    found = sorted(found, key=place, reverse=not wanted.oldest_first)
    if wanted.after is not None:
        last = wanted.after
        found = [one for one in found if (place(one) > last) == wanted.oldest_first and place(one) != last]
    shown = found[: wanted.limit]
    return shown, " ".join(place(shown[-1])) if len(found) > len(shown) else None


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise E2bRefusal(400, "startedAfter is a date and time") from None
    if moment.tzinfo is None:
        raise E2bRefusal(400, "startedAfter has a time zone")
    return moment


def _after(token: str | None) -> tuple[str, str] | None:
    if not token:
        return None
    parts = token.split(" ")
    if len(token) > 100 or len(parts) != 2:
        raise E2bRefusal(400, "nextToken is what the last page said")
    return parts[0], parts[1]
