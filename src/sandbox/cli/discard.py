"""`sandbox discard`: discards a sandbox's changes, or some of them."""

from __future__ import annotations

from sandbox.cli.apply import meant
from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox discard [id] [path…]"
    told = _("the sandbox; discard only these files and directories")
    parser.add_argument("words", nargs="*", metavar="[id] path", help=told)


def run(arguments: Namespace) -> int:
    entry, workspace, paths = meant(arguments.words)
    if entry.running and not paths:
        raise SandboxError("{id} is running; stop it first: `sandbox kill {id}`", id=entry.id)
    workspace.discard(paths or None)
    return 0
