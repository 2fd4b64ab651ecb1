"""The process-wide feed of audit entries, as in Milady: the newest ones in memory, and subscribers.

`feed` is the only state in this package that all sandboxes of a process share.
"""

from __future__ import annotations

from _thread import allocate_lock as Lock  # `threading` is loaded later: see `wiring.py`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Entry = Mapping[str, object]

CAPACITY = 5000


class Feed:
    """Keeps up to `capacity` entries. When it is full, it drops the older half."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._entries: list[Entry] = []
        self._subscribers: tuple[Callable[[Entry], object], ...] = ()
        self._lock = Lock()

    def publish(self, entry: Entry) -> None:
        """Adds an entry and calls the subscribers. One that raises does not affect the others."""
        with self._lock:
            self._entries.append(entry)
            if len(self._entries) > self.capacity:
                del self._entries[: len(self._entries) - self.capacity // 2]
            subscribers = self._subscribers
        for subscriber in subscribers:
            try:
                subscriber(entry)
            except Exception as problem:  # noqa: BLE001 - a listener must not stop what is being recorded
                import sys

                print(f"sandbox: an audit subscriber raised {problem!r}", file=sys.stderr)

    def query(
        self,
        *,
        type: str | None = None,
        severity: str | None = None,
        since_ms: int | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """The matching entries, oldest first; with `limit`, only the newest of them. `since_ms` is a Unix time."""
        since = None
        if since_ms is not None:
            from sandbox.audit.entry import timestamp

            since = timestamp(since_ms / 1000)  # text in this format sorts by time
        with self._lock:
            entries = list(self._entries)
        found = [
            one
            for one in entries
            if (type is None or one["type"] == type)
            and (severity is None or one["severity"] == severity)
            and (since is None or str(one["timestamp"]) >= since)
        ]
        return found if limit is None else found[max(0, len(found) - limit) :]

    def subscribe(self, subscriber: Callable[[Entry], object]) -> Callable[[], None]:
        """Calls `subscriber` with every entry from now on. Returns a function that unsubscribes."""
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)

        return unsubscribe

    def __len__(self) -> int:
        return len(self._entries)


feed = Feed()


def query_audit_feed(
    *,
    type: str | None = None,
    severity: str | None = None,
    since_ms: int | None = None,
    limit: int | None = None,
) -> list[Entry]:
    """The newest matching entries of this process."""
    return feed.query(type=type, severity=severity, since_ms=since_ms, limit=limit)


def subscribe_audit_feed(subscriber: Callable[[Entry], object]) -> Callable[[], None]:
    """Calls `subscriber` with every entry that this process records. Returns a function that unsubscribes."""
    return feed.subscribe(subscriber)


def get_audit_feed_size() -> int:
    """How many entries the feed holds now."""
    return len(feed)
