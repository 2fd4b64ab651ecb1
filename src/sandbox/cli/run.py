"""`sandbox run`: one command behind the walls, from a terminal or a script."""

from __future__ import annotations

import os
import sys

from sandbox.cli.output import shown
from sandbox.cli.run_summary import Refusals, status, tell
from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from sandbox.config.layers import Resolved, Widening
    from sandbox.registry.detach import Background
    from sandbox.sandbox import Sandbox


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox run [options] [--] command…"
    option = parser.add_argument
    option("--config", metavar="FILE", help=_("a configuration file"))
    option("--mode", help=_("off, light, standard or max"))
    option("--engine", help=_("what builds the walls: auto, bubblewrap, none …"))
    option("--user", help=_("who it is inside: user or root"))
    option("--root", metavar="DIR", help=_("the project (default: this directory)"))
    option("--overlay", action="store_true", default=None, help=_("keep changes apart, to review and apply them"))
    option("--memory", metavar="SIZE", help=_("most memory, such as 512m"))
    option("--cpus", metavar="N", help=_("most processors, such as 1.5"))
    option("--pids", metavar="N", type=int, help=_("most processes"))
    option("--timeout", metavar="TIME", help=_("longest it may run, such as 30s"))
    option("--env", metavar="NAME[=VALUE]", action="append", default=[], help=_("set or pass a variable"))
    option("--ro", metavar="PATH", action="append", default=[], help=_("a further path, readable"))
    option("--rw", metavar="PATH", action="append", default=[], help=_("a further path, writable"))
    option("--allow-host", metavar="HOST", action="append", default=[], help=_("a host it may talk to"))
    option("--publish", metavar="[HOST:]PORT", action="append", default=[], help=_("a port inside, on this machine"))
    option("--localhost", metavar="PORT", type=int, action="append", default=[], help=_("a port of ours, inside"))
    option("--detach", "-d", action="store_true", help=_("in the background; prints the sandbox's id"))
    option("--json", action="store_true", help=_("print the result as JSON, output included"))
    # REMAINDER: what follows the command's first word is the command's, options included.
    option("command", nargs="...", metavar="command", help=_("the command and its arguments"))


def run(arguments: Namespace) -> int:
    if not arguments.json:
        return _run(arguments)
    from sandbox.cli import as_json

    try:
        resolved, command = _asked(arguments)
        from sandbox.service import create

        made = create(resolved, command=command, tell=tell_ignored)
    except (SandboxError, OSError) as problem:
        as_json.failed(problem)
        raise
    with made as sandbox:
        return as_json.run(sandbox, command)


def _asked(arguments: Namespace) -> tuple[Resolved, list[str]]:
    """The configuration and the command."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise SandboxError("no command; try `sandbox run -- ls`")
    if arguments.detach and arguments.json:
        raise SandboxError("--json tells the result, for which --detach does not wait: choose one")
    _hide(arguments)
    resolved = configuration(arguments)
    return resolved, command


def _run(arguments: Namespace) -> int:
    resolved, command = _asked(arguments)
    if arguments.detach:
        from sandbox.registry.detach import detach

        return detach(lambda background: _in_background(resolved, command, background))
    from sandbox.service import create

    with create(resolved, command=command, tell=tell_ignored) as sandbox:
        tell_notices(sandbox)
        from sandbox.cli.foreground import foreground

        refusals = Refusals(sandbox)
        result = foreground(sandbox, command)
    return tell(sandbox, result, refusals)


def _hide(arguments: Namespace) -> None:
    """Values of variables do not stay in our arguments; nor, in the background, what of the command is a secret."""
    values = [value for one in arguments.env if (value := one.partition("=")[2])]
    if arguments.detach:
        from sandbox.policy.environment import secrets_of

        values += secrets_of(os.environ)
    if values:
        from sandbox.cli.arguments import hide_in_arguments

        hide_in_arguments(values)


def _in_background(resolved: Resolved, command: list[str], background: Background) -> int:
    from sandbox.cli.foreground import foreground
    from sandbox.errors import SandboxClosed
    from sandbox.service import create

    with create(resolved, command=command, tell=tell_ignored) as sandbox:
        tell_notices(sandbox)
        background.print_to(sandbox.log)
        try:
            return status(foreground(sandbox, command, started=lambda: background.started(sandbox.id)))
        except SandboxClosed as problem:
            if sandbox.end_reason:
                print(f"sandbox: {_.said(problem)}", file=sys.stderr)  # into the log
            return 0  # it was killed, or its time was over, as somebody wished
        except SandboxError as problem:
            print(f"sandbox: {_.said(problem)}", file=sys.stderr)  # into the log
            raise


def configuration(arguments: Namespace) -> Resolved:
    """The configuration that the flags and files ask for. Raises ConfigError."""
    from sandbox import service

    return service.configuration(flags(arguments), project=arguments.root or ".", config_file=arguments.config)


def tell_ignored(ignored: Widening) -> None:
    """Tells the person what a project's file asked for and did not get."""
    print(f"sandbox: {shown(ignored)}", file=sys.stderr)


def tell_notices(sandbox: Sandbox) -> None:
    """What the person should know before the command runs: what is hidden, and what cannot be held here in full."""
    for notice in sandbox.notices:
        print(f"sandbox: {_.said(notice)}", file=sys.stderr)


def flags(arguments: Namespace) -> dict[str, object]:
    """The command line as a configuration layer: only what was said."""
    filesystem = {
        "root": os.path.abspath(os.path.expanduser(arguments.root)) if arguments.root else None,
        "overlay": arguments.overlay,
        "allow_read": arguments.ro or None,
        "allow_write": arguments.rw or None,
    }
    layer: dict[str, object] = {
        "mode": arguments.mode,
        "engine": arguments.engine,
        "user": arguments.user,
        "filesystem": _said(filesystem),
        "limits": _said({name: getattr(arguments, name) for name in ("memory", "cpus", "pids", "timeout")}),
        "environment": _said({"set": _variables(arguments.env) or None}),
        "network": _said(
            {
                "allowed_hosts": arguments.allow_host or None,
                "publish": arguments.publish or None,
                "localhost_ports": arguments.localhost or None,
            }
        ),
    }
    return _said(layer)


def _said(options: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None and value != {}}


def _variables(given: list[str]) -> dict[str, str]:
    """`NAME=VALUE` sets; `NAME` alone passes the owner's own."""
    chosen: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name:
            raise SandboxError("--env names no variable before the =")
        if equals or name in os.environ:
            chosen[name] = value if equals else os.environ[name]
    return chosen
