"""`sandbox exec ID -- command`: runs another command in a running sandbox."""

from __future__ import annotations

import os

from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox exec [options] ID [--] command…"
    option = parser.add_argument
    option("--workdir", metavar="DIR", help=_("working directory in the sandbox"))
    option("--env", metavar="NAME=VALUE", action="append", default=[], help=_("set a variable"))
    option("--no-tty", action="store_true", help=_("use pipes even on a terminal"))
    option("id", metavar="ID", help=_("the sandbox's id, or the beginning of it"))
    option("command", nargs="...", metavar="command", help=_("the command and its arguments"))


def run(arguments: Namespace) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise SandboxError("no command; try `sandbox exec ID -- ls`")
    if arguments.command[0].startswith("-") and arguments.command[0] != "--":
        raise SandboxError("{command} comes after the id; put options before it", command=arguments.command[0])
    variables = dict(_variable(one) for one in arguments.env)
    from sandbox.cli.relay import in_background
    from sandbox.cli.remote import piped, with_terminal
    from sandbox.client import attach

    with attach(arguments.id) as client:
        if os.isatty(0) and os.isatty(1) and not arguments.no_tty and not in_background():
            return with_terminal(client, command, arguments.workdir, variables)
        return piped(client, command, arguments.workdir, variables)


def _variable(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise SandboxError("--env {given!r} is not NAME=VALUE", given=given)
    return name, value
