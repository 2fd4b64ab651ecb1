"""`sandbox cluster`: the machines of a Ray cluster, and what is on them. See docs/cluster.md."""

from __future__ import annotations

import os

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable
    from typing import Any

    from sandbox.cluster import Cluster

USES = ("SANDBOX", "NODE", "CPU", "MEMORY", "PROCESSES")
TEAMS = ("TEAM", "PRIORITY", "SANDBOXES", "CPUS", "MEMORY (GB)", "WAITING")
QUEUED = ("NUMBER", "TEAM", "PRIORITY", "WAITS FOR", "RESOURCES")
HEADS = ("NODE", "ADDRESS", "CPUS", "SANDBOXES", "READY", "STATE")


def add(parser: ArgumentParser) -> None:
    parser.usage = (
        "sandbox cluster status|nodes|top|queue [--json] | metrics [--serve PORT] | drain NODE [--undo] | "
        "teams [FILE | --clear]"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    for name, about in (
        ("status", _("how many nodes and sandboxes there are, and how many wait")),
        ("nodes", _("list the nodes")),
        ("top", _("what each sandbox uses")),
        ("metrics", _("the nodes for Prometheus, as text")),
        ("drain", _("stop placing sandboxes on a node")),
        ("queue", _("who waits for their turn, and what for")),
        ("teams", _("what each team may have and has, or set it")),
    ):
        action = actions.add_parser(name, help=about)
        action.add_argument(
            "--address",
            metavar="ADDRESS",
            help=_("the cluster (default: SANDBOX_CLUSTER, else the configuration's, else the one of this machine)"),
        )
        action.add_argument("--json", action="store_true", help=_("print JSON"))
        if name == "drain":
            action.add_argument("node", help=_("its id, or the beginning of it"))
            action.add_argument("--undo", action="store_true", help=_("place sandboxes there again"))
        if name == "teams":
            given = action.add_mutually_exclusive_group()
            given.add_argument(
                "file", nargs="?", metavar="FILE", help=_("YAML with the teams; they replace all others")
            )
            given.add_argument("--clear", action="store_true", help=_("remove all teams and their limits"))
        if name == "metrics":
            action.add_argument(
                "--serve", type=int, metavar="PORT", help=_("serve them at /metrics on this loopback port")
            )


def address(given: str | None) -> str:
    """The cluster to use: the given one, SANDBOX_CLUSTER's, the configuration's, or this machine's."""
    if given or os.environ.get("SANDBOX_CLUSTER"):
        return given or os.environ["SANDBOX_CLUSTER"]
    from sandbox.config.layers import resolve

    return resolve({}, project=".").config.cluster or "auto"


def run(arguments: Namespace) -> int:
    from sandbox.cli.output import print_json, table
    from sandbox.cluster import Cluster

    with Cluster(address(arguments.address)) as cluster:
        if arguments.action == "drain":
            cluster.drain(arguments.node, not arguments.undo)
            return 0
        if arguments.action == "teams" and (arguments.file or arguments.clear):
            cluster.set_teams(_teams(arguments.file) if arguments.file else {})
            return 0
        if arguments.action == "metrics":
            return _metrics(cluster, arguments.serve)
        if arguments.action == "status":
            found = _status(cluster)
            print_json(found) if arguments.json else print(table(list(found.items())))
            return 0
        ask, row, heads = _TABLES[arguments.action]
        rows = ask(cluster)
        print_json(rows) if arguments.json else print(table([row(one) for one in rows], heads))
    return 0


def _teams(file: str) -> dict[str, Any]:
    """The teams in a file. Raises ConfigError."""
    from sandbox.config.files import read
    from sandbox.errors import ConfigError

    found = read(file)
    if found is None:
        raise ConfigError("there is no such file", file=file)
    return found.data


def _metrics(cluster: Cluster, port: int | None) -> int:
    from sandbox.cluster import metrics

    if port is not None:
        metrics.serve(cluster, port)
    print(metrics.text(cluster.nodes(), cluster.waiting(), cluster.teams()).decode(), end="")
    return 0


def _status(cluster: Cluster) -> dict[str, int]:
    nodes = cluster.nodes()
    return {
        "nodes": len(nodes),
        "sandboxes": sum(one.get("sandboxes", 0) for one in nodes),
        "ready": sum(one.get("ready", 0) for one in nodes),
        "waiting": cluster.waiting(),
    }


def _team(one: dict[str, Any]) -> tuple[object, ...]:
    def shown(key: str, unit: float = 1.0) -> str:
        most = one["most"][key]
        return f"{one['used'][key] / unit:g}" + ("" if most is None else f" / {most / unit:g}")

    return (
        one["team"] or "-",
        one["priority"],
        shown("sandboxes"),
        shown("cpus"),
        shown("memory", 2**30),
        one["waiting"],
    )


def _queued(one: dict[str, Any]) -> tuple[object, ...]:
    wanted = ", ".join(f"{name} {amount:g}" for name, amount in one["resources"].items())
    return one["position"], one["team"] or "-", one["priority"], one["waits_for"], wanted


def _used(one: dict[str, Any]) -> tuple[object, ...]:
    size = f"{(one.get('memory_bytes') or 0) / 2**20:.0f} MB"
    return one["sandbox"], one["node"][:12], f"{(one.get('cpu_ms') or 0) / 1000:.1f} s", size, one.get("processes") or 0


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    state = "no agent" if "pid" not in one else "draining" if one["draining"] else "up"
    if one.get("record"):  # what keeps its record from being sent, or that it was changed
        state = f"{state}; {one['record']}"
    cpus = f"{one['resources'].get('CPU', 0):g}"
    return (
        one["node"][:12],
        one["address"],
        cpus,
        one.get("sandboxes", 0),
        one.get("ready", 0),
        one.get("problem", state),
    )


# How each list is asked for and shown.
_TABLES: dict[
    str, tuple[Callable[[Cluster], list[dict[str, Any]]], Callable[[dict[str, Any]], tuple[object, ...]], Any]
] = {
    "nodes": (lambda cluster: cluster.nodes(), _row, HEADS),
    "top": (lambda cluster: cluster.usage(), _used, USES),
    "queue": (lambda cluster: cluster.queue(), _queued, QUEUED),
    "teams": (lambda cluster: cluster.teams(), _team, TEAMS),
}
