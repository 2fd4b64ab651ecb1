"""`sandbox prune`: deletes all stopped sandboxes and what crashed ones left behind."""

from __future__ import annotations

import sys

from sandbox.cli.output import shown
from sandbox.cli.run_summary import tell_made, tell_undone
from sandbox.config.home import home
from sandbox.engines import cgroup_tree
from sandbox.engines.container import leftovers
from sandbox.guards.killed_sandboxes import repair_all
from sandbox.i18n import _
from sandbox.layout import cache_sets
from sandbox.registry import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--changes-too", action="store_true", help=_("also delete overlays with changes"))
    parser.add_argument("--json", action="store_true", help=_("print JSON"))


def run(arguments: Namespace) -> int:
    put_right()
    removed, kept = remove.prune(home(), changes_too=arguments.changes_too)
    cgroup_tree.sweep()  # what killed owners left on the machine
    leftovers.sweep()
    if sys.platform == "linux":
        from sandbox.checkpoints import store as checkpoints

        checkpoints.prune()  # those that were only half made
        from sandbox.engines.machine import template_store

        template_store.prune(template_store.templates())  # virtual machines to clone that nobody used for two weeks
    cache_sets.prune(home())  # what was added to package caches, of projects that are gone
    undone: list[tuple[str, str]] = []
    made: list[str] = []
    gone = repair_all(home(), lambda *one: undone.append(one), made.append)  # and what they left in projects
    tell_undone(undone)
    tell_made(made)
    for path in gone:
        said = _(
            "{path} was moved or removed since its sandbox was killed; if you moved it, run `sandbox run -- true` in "
            "it before you use git there"
        )
        print(f"sandbox: {said.format(path=shown(path))}", file=sys.stderr)
    if arguments.json:
        import json

        print(json.dumps({"removed": removed, "kept": kept}))
        return 0
    for id in removed:
        print(id)
    for id in kept:
        said = _("kept {id}: its overlay has changes (`sandbox rm {id}` deletes them)").format(id=id)
        print(said, file=sys.stderr)
    return 0


def put_right() -> None:
    """Repairs what a killed `apply` left in a project, because its journal is in the entry to be deleted."""
    import os

    from sandbox.registry.registry import entries

    for entry in entries(home()):
        if not entry.running and os.path.exists(f"{entry.path}/overlay/journal.json"):
            from sandbox.vfs.workspace import Workspace

            Workspace.find(home(), entry.id, ended=True).recover()
