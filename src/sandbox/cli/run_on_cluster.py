"""`sandbox run` on a cluster: uploads the guarded project, runs the command on our streams or terminal, and brings its
changes back as a layer to review."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sandbox.cli.run_summary import Refusals
from sandbox.errors import SandboxError
from sandbox.i18n import _

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from sandbox.cli.options import Arguments
    from sandbox.cluster import ClusterSandbox
    from sandbox.config.layers import Resolved

HERE = ("detach", "branch", "profile", "publish", "localhost")  # options about this machine


def refuse(arguments: Namespace | Arguments, command: Sequence[str]) -> None:
    """Raises SandboxError for options that only this machine supports: the command does not run here unasked."""
    for name in HERE:
        if getattr(arguments, name):
            raise SandboxError(
                "--{option} works only on this machine; put `SANDBOX_CLUSTER=` before the command to run it here",
                option=name,
            )
    if not command:
        raise SandboxError("no command; try `sandbox run -- ls`")


def run(address: str, resolved: Resolved, command: Sequence[str], *, as_json: bool = False) -> int:
    """Runs the command there. Returns its exit status. Raises what `Cluster.sandbox` raises, and SandboxLost."""
    from sandbox.cluster import Cluster
    from sandbox.cluster.node_config import travelling

    config = travelling(resolved, os.environ)
    project = resolved.config.filesystem.root
    with Cluster(address) as cluster, cluster.sandbox(config, project=project, on_wait=_Queue().tell) as sandbox:
        refusals = Refusals(sandbox, resolved.expected)
        if as_json:
            return _as_json(sandbox, command, refusals)
        code = _foreground(sandbox, command)
        if code != 0 or os.isatty(2):
            refusals.tell(sandbox)
        review, changed = _brought_back(sandbox)
        if changed:
            text = _("{count} changed: see `sandbox diff {id}`, then `sandbox apply {id}` or `sandbox discard {id}`")
            print(f"sandbox: {text.format(count=changed, id=review)}", file=sys.stderr)
        return code


def _foreground(sandbox: ClusterSandbox, command: Sequence[str]) -> int:
    from sandbox.cli.relay import in_background
    from sandbox.cli.remote import piped, with_terminal

    if os.isatty(0) and os.isatty(1) and not in_background():
        return with_terminal(sandbox, command, None, {})
    return piped(sandbox, command, None, {})


def _as_json(sandbox: ClusterSandbox, command: Sequence[str], refusals: Refusals) -> int:
    from sandbox.cli import as_json

    result = sandbox.exec(command)
    review, changed = _brought_back(sandbox)
    told: dict[str, object] = {
        "id": sandbox.id, "node": sandbox.node, "overlay": review or None, "changed": changed,
        "refused": refusals.plain(), "made": [], "undone": [], "notices": [],
    }  # fmt: skip
    return as_json.ended(result, told)


def _brought_back(sandbox: ClusterSandbox) -> tuple[str, int]:
    """The id of the layer here that has the changes, and how many there are."""
    if not sandbox.changes():
        return "", 0
    with sandbox.bring_back() as review:
        pass
    return review.id, len(review.changes())


class _Queue:
    """Prints our place in the queue when it changes, if stderr is a terminal."""

    def __init__(self) -> None:
        self._place = 0

    def tell(self, place: int) -> None:
        if os.isatty(2) and place != self._place:
            text = _("the cluster is full; number {place} in the queue").format(place=place)
            print(f"sandbox: {text}", file=sys.stderr)
        self._place = place
