"""`sandbox attach ID`: a shell in a running sandbox. Ctrl-P Ctrl-Q detaches; attaching again returns to it."""

from __future__ import annotations

import os

from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox attach [options] ID [--] [command…]"
    parser.epilog = _("Ctrl-P Ctrl-Q detaches and leaves the shell running; attach again to return to it.")
    parser.add_argument("--name", default="main", help=_("name of the terminal in the sandbox (default: main)"))
    parser.add_argument("id", metavar="ID", help=_("the sandbox's id, or the beginning of it"))
    parser.add_argument("command", nargs="...", metavar="command", help=_("command to run instead of a shell"))


def run(arguments: Namespace) -> int:
    if not (os.isatty(0) and os.isatty(1)):
        raise SandboxError("attach needs a terminal; without one, use `sandbox exec ID -- command`")
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    from sandbox.cli.remote import with_terminal
    from sandbox.client import attach

    with attach(arguments.id) as client:
        return with_terminal(client, command or "exec ${SHELL:-/bin/sh}", None, {}, keep=arguments.name)
