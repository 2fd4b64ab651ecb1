"""`sandbox fork ID|NAME`: starts sandboxes that continue from a running one, or from a checkpoint.

A command runs in each of them, and they end with it; without a command they run in the background until they are
killed. One process owns them all.
"""

from __future__ import annotations

import os
import sys

from sandbox.cli.output import shown
from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from sandbox.registry.detach import Background
    from sandbox.sandbox import Sandbox


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox fork [-n N] [--env NAME[=VALUE]] [--secret NAME] ID|NAME [-- command…]"
    option = parser.add_argument
    option("-n", type=int, default=1, metavar="N", help=_("how many (default: 1)"))
    option("--env", metavar="NAME[=VALUE]", action="append", default=[], help=_("give a variable's value again"))
    option("--secret", metavar="NAME", action="append", default=[], help=_("give a secret again, from your variable"))
    option("origin", metavar="ID|NAME", help=_("a running sandbox, or a checkpoint"))
    option("command", nargs="...", metavar="command", help=_("the command and its arguments"))


def run(arguments: Namespace) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not 0 < arguments.n <= 64:
        raise SandboxError("-n must be a number from 1 to 64")
    config = _given(arguments)
    if command:
        return _in_each(arguments.origin, arguments.n, config, command)
    from sandbox.registry.detach import detach

    return detach(lambda background: _wait(arguments.origin, arguments.n, config, background))


def _checkpoint(origin: str) -> tuple[str, bool]:
    """The checkpoint to start from, and whether it was made only for this fork."""
    from sandbox.checkpoints.store import checkpoints

    if any(one.name == origin for one in checkpoints()):
        return origin, False
    from sandbox.client import attach

    with attach(origin) as client:
        return client.checkpoint(None).name, True


def _given(arguments: Namespace) -> dict[str, Any]:
    """What a checkpoint does not hold: the values of variables and secrets."""
    variables = dict(_variable(one) for one in arguments.env)
    secrets = {name: {"value": _own(name)} for name in arguments.secret}
    config: dict[str, Any] = {"environment": {"set": variables}} if variables else {}
    return config | ({"network": {"secrets": secrets}} if secrets else {})


def _variable(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    return name, value if equals else _own(name)


def _own(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise SandboxError("{name} is not set in your environment", name=name) from None


def _restored(origin: str, count: int, config: dict[str, Any]) -> list[Sandbox]:
    from sandbox.checkpoints.store import remove
    from sandbox.sandbox import Sandbox

    made: list[Sandbox] = []
    name, temporary = _checkpoint(origin)
    try:
        while len(made) < count:
            made.append(Sandbox.restore(name, config))
            for notice in made[-1].notices:
                print(f"sandbox: {shown(_.text(notice))}", file=sys.stderr)
    except BaseException:
        for one in made:
            one.close()
        raise
    finally:
        if temporary:
            remove(name)
    return made


def _in_each(origin: str, count: int, config: dict[str, Any], command: list[str]) -> int:
    from concurrent.futures import ThreadPoolExecutor

    made = _restored(origin, count, config)
    try:
        if count == 1:
            from sandbox.cli.foreground import foreground
            from sandbox.cli.run_summary import status

            return status(foreground(made[0], command))
        with ThreadPoolExecutor(count) as pool:
            return max(pool.map(lambda one: _run(one, command), made))
    finally:
        for one in made:
            one.close()


def _run(sandbox: Sandbox, command: list[str]) -> int:
    """Runs the command, then prints every line of its output with the id before it."""
    result = sandbox.exec(command)
    for stream, text in ((sys.stdout, result.stdout), (sys.stderr, result.stderr)):
        stream.write("".join(f"{sandbox.id}: {line}\n" for line in text.splitlines()))
    return result.exit_code


def _wait(origin: str, count: int, config: dict[str, Any], background: Background) -> int:
    made = _restored(origin, count, config)
    background.print_to(made[0].log)
    background.started("\n".join(one.id for one in made))
    for one in made:
        with one._gone:
            pass
    return 0
