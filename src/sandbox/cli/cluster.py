"""`sandbox cluster`: the machines of a Ray cluster, and what is on them. See docs/cluster.md."""

from __future__ import annotations

import os

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

USES = ("SANDBOX", "NODE", "CPU", "MEMORY", "PROCESSES")
HEADS = ("NODE", "ADDRESS", "CPUS", "SANDBOXES", "READY", "STATE")


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox cluster status|nodes|top [--json] | metrics | drain NODE [--undo]"
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    for name, about in (
        ("status", _("how many nodes and sandboxes there are, and how many wait")),
        ("nodes", _("list the nodes")),
        ("top", _("what each sandbox uses")),
        ("metrics", _("the nodes for Prometheus, as text")),
        ("drain", _("have no further sandbox made on a node")),
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
            action.add_argument("--undo", action="store_true", help=_("let sandboxes be made there again"))


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
        if arguments.action == "top":
            used = cluster.usage()
            print_json(used) if arguments.json else print(table([_used(one) for one in used], USES))
            return 0
        nodes = cluster.nodes()
        if arguments.action == "metrics":
            from sandbox.cluster.metrics import text

            print(text(nodes, cluster.waiting()).decode(), end="")
            return 0
        if arguments.action == "nodes":
            print_json(nodes) if arguments.json else print(table([_row(one) for one in nodes], HEADS))
            return 0
        found = {
            "nodes": len(nodes),
            "sandboxes": sum(one.get("sandboxes", 0) for one in nodes),
            "ready": sum(one.get("ready", 0) for one in nodes),
            "waiting": cluster.waiting(),
        }
        print_json(found) if arguments.json else print(table(list(found.items())))
    return 0


def _used(one: dict[str, Any]) -> tuple[object, ...]:
    size = f"{(one.get('memory_bytes') or 0) / 2**20:.0f} MB"
    return one["sandbox"], one["node"][:12], f"{(one.get('cpu_ms') or 0) / 1000:.1f} s", size, one.get("processes") or 0


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    state = "no agent" if "pid" not in one else "draining" if one["draining"] else "up"
    cpus = f"{one['resources'].get('CPU', 0):g}"
    return (
        one["node"][:12],
        one["address"],
        cpus,
        one.get("sandboxes", 0),
        one.get("ready", 0),
        one.get("problem", state),
    )
