"""`sandbox ssh-proxy ID`: what ssh runs as its ProxyCommand. See `ssh-config`."""

from __future__ import annotations

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help=_("the sandbox's id, or the beginning of it"))


def run(arguments: Namespace) -> int:
    from sandbox.cli.remote import piped
    from sandbox.client import attach
    from sandbox.integrations.ssh import start_server

    with attach(arguments.id) as client:
        command, place = start_server(client)
        try:
            return piped(client, command, None, {})
        finally:
            client.remove(place, recursive=True)
