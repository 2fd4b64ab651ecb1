"""The record: queries, a live stream that resumes without loss, verification, export, and the specification's feed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, get
from litestar.params import Parameter
from litestar.response import Stream

from sandbox.audit import otlp, reading
from sandbox.audit.entry import SEVERITIES, TYPES, timestamp
from sandbox.server import sse
from sandbox.server.refusal import Refusal
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.server.shapes import Feed, Verdict

Type = Annotated[str | None, Parameter(description=f"one of {', '.join(TYPES)}")]
Severity = Annotated[str | None, Parameter(description="this one or higher")]
Only = Annotated[str | None, Parameter(max_length=80, description="id or name of a sandbox")]
Words = Annotated[str | None, Parameter(max_length=200, description="text in any field")]
Since = Annotated[str | None, Parameter(max_length=40, description="ISO 8601, or a Unix time in ms")]
Limit = Annotated[int, Parameter(ge=1, le=1000)]
After = Annotated[int, Parameter(ge=0, le=2**62, description="only entries after this number")]
Result = Annotated[Literal["allowed", "blocked"] | None, Parameter()]

_AT_ONCE = 500  # entries of the record that are read at a time
_QUEUE = 20_000  # entries that a slow reader may be behind; after that they are read from the record again

Fits = Callable[[dict[str, Any]], bool]


def filtered(
    server: Server, access: Access, *, type: str | None, severity: str | None, sandbox: str | None, text: str | None,
    since: str | None = None, result: str | None = None, exact: bool = False,
) -> Fits:  # fmt: skip
    """A test for whether an entry matches and the token may see it. Raises Refusal for a value no entry can have."""
    if type is not None and type not in TYPES:
        raise _invalid("type", f"must be one of {', '.join(TYPES)}")
    if severity is not None and severity not in SEVERITIES:
        raise _invalid("severity", f"must be one of {', '.join(SEVERITIES)}")
    levels = (severity,) if exact and severity else SEVERITIES[SEVERITIES.index(severity or "info") :]
    known = server.reach.known(sandbox) if sandbox else None
    wanted = known.id if known is not None else sandbox
    from_time = _time(since)
    words = text.lower() if text else None

    def fits(entry: dict[str, Any]) -> bool:
        whose = str(entry.get("sandbox", ""))
        return (
            (type is None or entry.get("type") == type)
            and (severity is None or entry.get("severity") in levels)
            and (wanted is None or whose == wanted or (len(wanted) > 3 and whose.startswith(wanted)))
            and (from_time is None or str(entry.get("timestamp", "")) >= from_time)
            and (result is None or entry.get("result") == result)
            and (words is None or any(words in str(value).lower() for value in entry.values()))
            and (not access.sandboxes or access.reaches(whose, server.reach.name_of(whose)))
        )

    return fits


def _invalid(field: str, message: str) -> Refusal:
    return Refusal(400, "invalid", message, field=field)


def _time(since: str | None) -> str | None:
    if not since:
        return None
    try:
        if since.isdecimal():
            return timestamp(int(since) / 1000)
        return timestamp(datetime.fromisoformat(since).timestamp())
    except (ValueError, OverflowError, OSError):
        raise _invalid("since", "must be a time as ISO 8601, or in milliseconds since 1970") from None


@get("/v1/audit", opt={"verb": "audit"})
async def query(
    server: Server, access: Access, type: Type = None, severity: Severity = None, sandbox: Only = None,
    text: Words = None, since: Since = None, result: Result = None, after: After = 0, limit: Limit = 100,
) -> Feed:  # fmt: skip
    """The newest matching entries of the whole record; with `after`, the first ones after that number."""
    chosen = {"type": type, "severity": severity, "sandbox": sandbox, "text": text, "since": since, "result": result}
    fits = filtered(server, access, **chosen)  # type: ignore[arg-type]
    server.tail.catch_up()
    last = server.tail.last  # before the record is read: whoever follows from there misses nothing
    return Feed(await server.run(lambda: _matching(server, fits, after, limit)), last)


def _matching(server: Server, fits: Fits, after: int, limit: int) -> list[dict[str, Any]]:
    found: deque[dict[str, Any]] = deque(maxlen=None if after else limit)
    for entry in server.tail.history(after, 2**63):
        if fits(entry):
            found.append(entry)
            if after and len(found) >= limit:
                break
    return list(found)


@get("/v1/audit/stream", opt={"verb": "audit"}, media_type="text/event-stream")
async def stream(
    request: Request[Any, Any, Any], server: Server, access: Access, type: Type = None, severity: Severity = None,
    sandbox: Only = None, text: Words = None, result: Result = None,
) -> Stream:  # fmt: skip
    """Entries as they are written, as events `entry` whose id is the entry's number.

    `Last-Event-ID` resumes after that number, from the record: nothing is lost, nothing comes twice.
    """
    chosen = {"type": type, "severity": severity, "sandbox": sandbox, "text": text, "result": result}
    fits = filtered(server, access, **chosen)  # type: ignore[arg-type]
    last = request.headers.get("last-event-id", "")
    if last and not (last.isascii() and last.isdecimal() and len(last) < 19):
        raise _invalid("Last-Event-ID", "must be the number of an entry")
    server.tail.catch_up()
    after = int(last) if last else server.tail.last
    if after > server.tail.last:  # a number of another record, which is gone: this client has seen none of ours
        after = 0
    return sse.response(_live(server, fits, after))


class _Waiting:
    """Entries that have arrived but were not sent yet. If there are too many, all are dropped: the record has them."""

    def __init__(self) -> None:
        self._batches: deque[list[dict[str, Any]]] = deque()
        self._count = 0
        self.changed = asyncio.Event()

    def put(self, batch: list[dict[str, Any]]) -> None:
        self._count += len(batch)
        if self.too_many:
            self._batches.clear()
        else:
            self._batches.append(batch)
        self.changed.set()

    @property
    def too_many(self) -> bool:
        return self._count > _QUEUE

    def take(self, after: int) -> list[dict[str, Any]]:
        """Removes everything, and returns the entries after number `after`."""
        taken = [one for batch in self._batches for one in batch if one["seq"] > after]
        self._batches.clear()
        self._count = 0
        return taken


async def _live(server: Server, fits: Fits, after: int) -> AsyncIterator[bytes]:
    """First the record's entries after that number, then new ones. Subscribes before it reads the record."""
    waiting = _Waiting()
    unsubscribe = server.tail.subscribe(waiting.put)
    try:
        yield b": the record, from %d on\n\n" % after
        look_back = True
        while True:
            waiting.changed.clear()  # before anything is taken, so that what arrives while sending is not missed
            if look_back or waiting.too_many:
                until, look_back = server.tail.last, False
                waiting.take(until)
                entries = server.tail.history(after, until)
                while some := await server.run(partial(_next, entries)):
                    if text := _text(some, fits):
                        yield text
                after = max(after, until)
                continue
            if batch := waiting.take(after):
                after = batch[-1]["seq"]
                if text := _text(batch, fits):
                    yield text
            if not await server.pause(waiting.changed, sse.PAUSE):
                return
            if not waiting.changed.is_set():
                yield sse.KEEP_ALIVE
    finally:
        unsubscribe()


def _next(entries: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some of them: the whole record may be larger than memory."""
    return list(islice(entries, _AT_ONCE))


def _text(entries: Iterable[dict[str, Any]], fits: Fits) -> bytes:
    return b"".join(encoded(one) for one in entries if fits(one))


def encoded(entry: dict[str, Any]) -> bytes:
    return sse.event("entry", entry, entry["seq"])


@get("/v1/audit/verify", opt={"verb": "audit"})
async def verify(server: Server) -> Verdict:
    """Whether any entry of the record was altered, removed or moved."""
    found = await server.run(lambda: reading.verify(server.tail.directory))
    return Verdict(bool(found), found.count, str(found.problem), found.file, found.line)


@get("/v1/audit/export", opt={"verb": "audit"}, media_type="application/x-ndjson")
async def export(
    server: Server, access: Access, format: Literal["jsonl", "otlp"] = "jsonl", type: Type = None,
    severity: Severity = None, sandbox: Only = None, text: Words = None, since: Since = None, result: Result = None,
    after: After = 0,
) -> Stream:  # fmt: skip
    """All matching entries, oldest first: one JSON line each, or lines of OpenTelemetry logs (OTLP/JSON)."""
    chosen = {"type": type, "severity": severity, "sandbox": sandbox, "text": text, "since": since, "result": result}
    fits = filtered(server, access, **chosen)  # type: ignore[arg-type]
    found = (one for one in server.tail.history(after, 2**63) if fits(one))
    lines = otlp.lines(found) if format == "otlp" else (msgspec.json.encode(one).decode() for one in found)
    first = await server.run(lambda: _some(lines))  # an error here still becomes a status: the answer has not begun
    return Stream(_exported(server, first, lines), media_type="application/x-ndjson")


def _some(lines: Iterator[str]) -> bytes:
    return b"".join(f"{one}\n".encode() for one in islice(lines, 200))


async def _exported(server: Server, some: bytes, lines: Iterator[str]) -> AsyncIterator[bytes]:
    while some:
        yield some
        some = await server.run(lambda: _some(lines))


# -- the specification's feed


@get("/api/audit/feed", opt={"verb": "audit"})
async def feed(
    server: Server, access: Access, type: Type = None, severity: Severity = None, since: Since = None,
    sinceMs: Annotated[int | None, Parameter(ge=0, le=2**53)] = None, limit: Limit = 100,
) -> dict[str, Any]:  # fmt: skip
    """The newest entries in the feed's buffer. `replayed`: some of them are from before this server started."""
    moment = str(sinceMs) if sinceMs is not None else since
    chosen = {"type": type, "severity": severity, "sandbox": None, "text": None, "since": moment}
    fits = filtered(server, access, **chosen, exact=True)
    server.tail.catch_up()
    found = [dict(one) for one in server.tail.feed.query() if fits(dict(one))][-limit:]
    before = timestamp(server.started)
    replayed = any(str(one["timestamp"]) < before for one in found)
    return {"entries": found, "totalBuffered": len(server.tail.feed), "replayed": replayed}


ROUTES = [query, stream, export, verify, feed]
