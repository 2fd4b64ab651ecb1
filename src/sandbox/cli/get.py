"""`sandbox get ID`: shows everything about one sandbox, as JSON."""

from __future__ import annotations

from sandbox.config.home import home
from sandbox.i18n import _
from sandbox.registry.registry import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("id", help=_("the sandbox's id, or the beginning of it"))


def run(arguments: Namespace) -> int:
    import json

    entry = find(home(), arguments.id)
    print(json.dumps(entry.plain() | {"mounts": entry.mounts, "config": entry.config}, indent=2))
    return 0
