"""`sandbox caches`: shows and removes what sandboxes have added to package caches."""

from __future__ import annotations

import os

from sandbox.cli.output import print_json, table
from sandbox.config.home import home
from sandbox.errors import SandboxError
from sandbox.i18n import _
from sandbox.layout.cache_sets import clear, sets, size_of
from sandbox.layout.caches import directory_of, project_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox caches list [--json] | clear [--all] [project…]"
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    listed = actions.add_parser("list", help=_("list what sandboxes have added to package caches, by project"))
    listed.add_argument("--json", action="store_true", help=_("print JSON"))
    cleared = actions.add_parser("clear", help=_("remove it; your own caches stay as they are"))
    cleared.add_argument("project", nargs="*", help=_("the projects (default: the one in the current directory)"))
    cleared.add_argument("--all", action="store_true", help=_("of every project"))


def run(arguments: Namespace) -> int:
    if arguments.action == "list":
        found = [(project_of(one) or "-", size_of(one)) for one in sets(home())]
        if arguments.json:
            print_json([{"project": project, "bytes": size} for project, size in found])
        elif found:
            print(table([(f"{size / 2**20:.1f} MB", project) for project, size in found]))
        return 0
    if arguments.all and arguments.project:
        raise SandboxError("name projects, or use --all")
    chosen = list(sets(home())) if arguments.all else [_set_of(one) for one in arguments.project or ["."]]
    busy = [one for one in chosen if os.path.isdir(one) and not clear(one)]
    if busy:
        raise SandboxError("a sandbox uses the caches of {project}", project=project_of(busy[0]) or busy[0])
    return 0


def _set_of(project: str) -> str:
    try:
        return directory_of(home(), os.path.realpath(project))
    except OSError:
        raise SandboxError("{asked!r} is not a directory", asked=project) from None
