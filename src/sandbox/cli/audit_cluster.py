"""`sandbox audit --cluster`: the records of all machines of a cluster as one feed, and whether each chain holds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from sandbox.i18n import _

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from sandbox.cluster.records import Records

POLL = 1.0  # seconds between two looks with --follow


def run(
    arguments: Namespace,
    fits: Callable[[dict[str, Any]], bool],
    show: Callable[[list[dict[str, Any]]], object],
) -> int:
    """Shows the entries that fit, or verifies. Raises SandboxError."""
    from sandbox.cli.cluster import address
    from sandbox.cluster import Cluster

    with Cluster(address(None)) as cluster, cluster.records() as records:
        everything = records.new()
        if arguments.action == "verify":
            return _verify(records, arguments.json)
        entries = [one for one in everything if fits(one)]
        if arguments.lines is not None:
            entries = entries[max(0, len(entries) - arguments.lines) :]
        show(entries)
        try:
            while arguments.follow:
                sys.stdout.flush()
                time.sleep(POLL)
                show([one for one in records.new() if fits(one)])
        except KeyboardInterrupt:
            pass
    return 0


def _verify(records: Records, as_json: bool) -> int:
    from sandbox.cli.output import print_json, shown

    verdicts = records.verdicts()
    if as_json:
        print_json({node: {"count": one.count, "problem": one.problem} for node, one in verdicts.items()})
    for node, one in () if as_json else verdicts.items():
        words = (
            _("{count} entries; none altered, removed or moved").format(count=one.count)
            if one
            else f"{_.text(one.problem)}; " + _("the {count} entries before it are intact").format(count=one.count)
        )
        print(shown(f"{node}: {words}"))
    return 0 if all(verdicts.values()) else 1
