"""`sandbox ssh-config ID`: prints what to put into ~/.ssh/config so that ssh and editors reach a sandbox."""

from __future__ import annotations

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help=_("the sandbox's id, or the beginning of it"))


def run(arguments: Namespace) -> int:
    from sandbox.cli.hook_settings import program
    from sandbox.client import attach
    from sandbox.integrations.ssh import client_settings

    with attach(arguments.id) as client:
        print(client_settings(client, program()), end="")
    return 0
