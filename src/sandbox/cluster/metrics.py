"""A cluster in Prometheus' text format, for the textfile collector of its node exporter or any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

_OF_A_NODE = {
    "sandboxes": "sandboxes that somebody has",
    "ready": "sandboxes that wait to be handed out",
    "draining": "whether no further sandbox is made there",
}


class _Collector:
    """The metrics of one moment."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]], waiting: int) -> None:
        self._nodes, self._waiting = nodes, waiting

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("sandbox_cluster_nodes", "machines that Ray counts as alive", value=len(self._nodes))
        yield GaugeMetricFamily("sandbox_cluster_waiting", "sandboxes that wait for room", value=self._waiting)
        for name, about in _OF_A_NODE.items():
            family = GaugeMetricFamily(f"sandbox_cluster_{name}", about, labels=["node"])
            for one in self._nodes:
                family.add_metric([str(one["node"])[:12]], float(one.get(name, 0)))
            yield family
        family = GaugeMetricFamily("sandbox_cluster_silent", "whether its agent did not answer", labels=["node"])
        for one in self._nodes:
            family.add_metric([str(one["node"])[:12]], float("problem" in one))
        yield family


def text(nodes: Sequence[Mapping[str, Any]], waiting: int) -> bytes:
    """The whole page."""
    registry = CollectorRegistry()
    registry.register(_Collector(nodes, waiting))
    return bytes(generate_latest(registry))
