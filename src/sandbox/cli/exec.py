"""`sandbox exec ID -- command`: a further command in a sandbox that runs."""

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
    option("--workdir", metavar="DIR", help=_("where it runs, inside"))
    option("--env", metavar="NAME=VALUE", action="append", default=[], help=_("set a variable"))
    option("--no-tty", action="store_true", help=_("pipes, also at a terminal"))
    option("id", metavar="ID", help=_("the sandbox, or the beginning of its id"))
    option("command", nargs="...", metavar="command", help=_("the command and its arguments"))


def run(arguments: Namespace) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise SandboxError("no command; try `sandbox exec ID -- ls`")
    if arguments.command[0].startswith("-") and arguments.command[0] != "--":
        raise SandboxError(f"{arguments.command[0]} stands behind the id; options come before it")
    variables = dict(_variable(one) for one in arguments.env)
    from sandbox.cli.foreground import in_background
    from sandbox.cli.remote import piped, with_terminal
    from sandbox.client import attach

    with attach(arguments.id) as client:
        if os.isatty(0) and os.isatty(1) and not arguments.no_tty and not in_background():
            return with_terminal(client, command, arguments.workdir, variables)
        return piped(client, command, arguments.workdir, variables)


def _variable(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise SandboxError(f"--env {given!r} is not NAME=VALUE")
    return name, value
