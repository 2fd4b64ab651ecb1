"""`/metrics`: counts and sizes in Prometheus' text format."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from litestar import Response, get
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sandbox.errors import SandboxError
from sandbox.server.refusal import Refusal
from sandbox.server.scopes import Access
from sandbox.server.server import Server

if TYPE_CHECKING:
    from sandbox.registry.registry import Entry

_USES = {
    "memory_bytes": "memory of all its processes",
    "memory_peak_bytes": "the most memory that it used",
    "cpu_ms": "processor time, in milliseconds",
    "processes": "processes that run",
}


@get("/metrics", opt={"verb": "read"}, media_type="text/plain")
async def metrics(server: Server, access: Access) -> Response[bytes]:
    """Sandboxes by status, the resources each running one uses, requests by status, entries in the record."""
    if access.sandboxes:
        raise Refusal(403, "forbidden", "metrics are about every sandbox; this token is for some")
    text = await server.run(lambda: _text(server, access))
    # With a media type, Litestar would add a second charset, and Prometheus refuses a type that names one twice.
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})


def _text(server: Server, access: Access) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Collector(server, access))
    return bytes(generate_latest(registry))


class _Collector:
    """Collects the values at the time of the request."""

    def __init__(self, server: Server, access: Access) -> None:
        self._server, self._access = server, access

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        found = self._server.sandboxes.list()
        counts = Counter(one.status for one in found)
        by_status = GaugeMetricFamily("sandbox_count", "sandboxes of this user", labels=["status"])
        for status in ("running", "stopped", "crashed"):
            by_status.add_metric([status], counts[status])
        yield by_status
        yield from self._line()
        if self._server.ready is not None:
            pool = self._server.ready.stats()
            yield GaugeMetricFamily("sandbox_pool_ready", "sandboxes that wait to be handed out", pool.ready)
            yield CounterMetricFamily("sandbox_pool_handed_out", "sandboxes that were taken ready", pool.handed_out)
            yield CounterMetricFamily("sandbox_pool_empty", "requests that found none ready", pool.empty)
        yield from self._uses([one for one in found if one.running])
        requests = CounterMetricFamily("sandbox_http_requests", "requests by status", labels=["status"])
        for code, count in sorted(self._server.answered.items()):
            requests.add_metric([str(code)], count)
        yield requests
        entries = CounterMetricFamily("sandbox_record_entries", "the number of the record's newest entry")
        entries.add_metric([], self._server.tail.last)
        yield entries
        yield GaugeMetricFamily("sandbox_server_memory_bytes", "resident memory of the server", value=_resident())

    def _line(self) -> Iterator[Metric]:
        places = self._server.places
        yield GaugeMetricFamily("sandbox_own", "sandboxes that this server runs", value=self._server.in_use())
        yield GaugeMetricFamily("sandbox_queue_length", "who waits for a place (--most)", value=places.waiting)
        most = places.most if places.most is not None else float("inf")
        yield GaugeMetricFamily("sandbox_most", "how many sandboxes may run at a time", value=most)
        yield CounterMetricFamily("sandbox_queue_refused", "who waited in vain", value=places.refused)

    def _uses(self, running: list[Entry]) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(f"sandbox_{name}", text, labels=["sandbox"]) for name, text in _USES.items()
        }
        for entry in running:
            try:
                stats = self._server.reach.get(entry.id, self._access).sandbox.stats()
            except (SandboxError, OSError):
                continue  # it has just ended
            for name, family in families.items():
                if (value := stats[name]) is not None:
                    family.add_metric([entry.id], value)
        yield from families.values()


def _resident() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


ROUTES = [metrics]
