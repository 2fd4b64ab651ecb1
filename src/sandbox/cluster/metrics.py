"""A cluster in Prometheus' text format: to be scraped, or for the textfile collector of its node exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from sandbox.errors import SandboxError
from sandbox.i18n import _

if TYPE_CHECKING:
    from sandbox.cluster.cluster import Cluster

_OF_A_NODE = {
    "sandboxes": "sandboxes that somebody has",
    "ready": "sandboxes that wait to be handed out",
    "draining": "whether no further sandbox is made there",
}

_WRONG_WITH_A_NODE = (
    ("silent", "whether its agent did not answer", "problem"),
    ("record_problem", "whether its record is not sent, or was altered, rolled back or replaced", "record"),
)

_OF_A_TEAM = {
    "sandboxes": "sandboxes that the team has",
    "cpus": "processors that they reserve",
    "memory": "bytes of memory that they reserve",
    "waiting": "sandboxes of the team that wait for their turn",
}


class _Collector:
    """The metrics of one moment."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]], waiting: int, teams: Sequence[Mapping[str, Any]]) -> None:
        self._nodes, self._waiting, self._teams = nodes, waiting, teams

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
        for name, about, key in _WRONG_WITH_A_NODE:
            family = GaugeMetricFamily(f"sandbox_cluster_{name}", about, labels=["node"])
            for one in self._nodes:
                family.add_metric([str(one["node"])[:12]], float(bool(one.get(key))))
            yield family
        yield from self._of_teams()

    def _of_teams(self) -> Iterator[Metric]:
        for name, about in _OF_A_TEAM.items():
            family = GaugeMetricFamily(f"sandbox_cluster_team_{name}", about, labels=["team"])
            for one in self._teams:
                family.add_metric([one["team"]], float(one["waiting"] if name == "waiting" else one["used"][name]))
            yield family


def text(nodes: Sequence[Mapping[str, Any]], waiting: int, teams: Sequence[Mapping[str, Any]] = ()) -> bytes:
    """The whole page."""
    registry = CollectorRegistry()
    registry.register(_Collector(nodes, waiting, teams))
    return bytes(generate_latest(registry))


def serve(cluster: Cluster, port: int) -> NoReturn:
    """Serves the page at /metrics of the loopback, for Prometheus to scrape, until the process is ended."""
    from wsgiref.simple_server import make_server

    with make_server("127.0.0.1", port, page(cluster), handler_class=_Quiet) as server:
        print(_("serving on {address}").format(address=f"http://127.0.0.1:{server.server_port}/metrics"), flush=True)
        server.serve_forever()
    raise SystemExit


def page(cluster: Cluster) -> Any:
    """A WSGI application with that page alone. While the cluster does not answer, it answers 503."""

    def answer(environ: Mapping[str, Any], start: Any) -> list[bytes]:
        if environ["PATH_INFO"] != "/metrics" or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"see /metrics\n"]
        try:
            found = text(cluster.nodes(), cluster.waiting(), cluster.teams())
        except SandboxError as problem:
            start("503 Service Unavailable", [("Content-Type", "text/plain")])
            return [f"{problem}\n".encode()]
        start("200 OK", [("Content-Type", CONTENT_TYPE_LATEST)])
        return [found]

    return answer


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed for each request."""
