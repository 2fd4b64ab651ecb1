"""`sandbox mcp`: an MCP server whose tools act in a sandbox. `sandbox mcp wrap`: another one, behind walls."""

from __future__ import annotations

import os
import sys

from sandbox.cli import run as run_command
from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from sandbox.aio import AsyncSandbox
    from sandbox.integrations.mcp_wrap import Wrapped
    from sandbox.protocols import Process

LEFT_OUT = ("--detach", "--json", "--branch", "--commit-rest", "--force", "--profile", "--trust")
PIECE = 65536


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox mcp [options]\n       sandbox mcp [options] wrap [--] server…"
    from sandbox.cli.options import add_to

    add_to(parser, [one for one in run_command.OPTIONS if one.name not in LEFT_OUT])
    option = parser.add_argument
    option("--http", type=int, metavar="PORT", help=_("serve streamable HTTP on this port of the loopback"))
    option("--name", metavar="NAME", help=_("wrap: the server's name, under which its tools are remembered"))
    option("--accept", action="store_true", help=_("wrap: take what the tools say now for what they should say"))


def run(arguments: Namespace) -> int:
    for name in LEFT_OUT:
        setattr(arguments, name.lstrip("-").replace("-", "_"), None)
    words = list(arguments.command)
    if words[:1] == ["wrap"]:
        command = words[2:] if words[1:2] == ["--"] else words[1:]
        if not command:
            raise SandboxError("no server; try `sandbox mcp wrap -- npx some-server`")
        return _wrap(arguments, command)
    if words:
        raise SandboxError("unknown action {word!r}; `sandbox mcp` or `sandbox mcp wrap -- server`", word=words[0])
    return _serve(arguments)


# -- our own server


def _serve(arguments: Namespace) -> int:
    try:
        from sandbox.integrations.mcp_server import make_server
    except ImportError as problem:
        raise SandboxError(
            "the MCP server needs {module}; install it with: pip install 'agent-sandbox[mcp]'", module=problem.name
        ) from problem
    resolved = run_command.configuration(arguments)
    for ignored in resolved.warnings:
        run_command.tell_ignored(ignored)

    def make() -> AsyncSandbox:
        from sandbox.aio import AsyncSandbox

        return AsyncSandbox(resolved.config, command=["sandbox", "mcp"])

    server, sandboxes = make_server(make)
    if arguments.http is None:
        server.run()
        return 0
    from sandbox.integrations.mcp_http import serve

    return serve(server, sandboxes, arguments.http, _tell_address)


def _tell_address(address: str, token: str) -> None:
    print(f"{address}\nAuthorization: Bearer {token}", file=sys.stderr, flush=True)


# -- another server


def _wrap(arguments: Namespace, command: list[str]) -> int:
    from sandbox.integrations.mcp_wrap import KnownWords, Wrapped
    from sandbox.service import create

    known = KnownWords(arguments.name or os.path.basename(command[-1]).lstrip("@-") or "server")
    if arguments.accept:
        known.forget()
    with create(run_command.configuration(arguments), command=command, tell=run_command.tell_ignored) as sandbox:
        wrapped = Wrapped(known, sandbox.record.write, _tell)
        with sandbox.spawn(command) as process:
            return _relay(process, wrapped)


def _tell(name: str) -> None:
    from sandbox.cli.output import shown

    line = _(
        "sandbox: the MCP server describes this otherwise than before, so it is withheld: {name}; --accept lets it pass"
    )
    print(line.format(name=shown(name)), file=sys.stderr)


def _relay(process: Process, wrapped: Wrapped) -> int:
    """Moves lines both ways until the server ends, or the client has sent everything and the server has answered."""
    from threading import Lock, Thread

    from sandbox.cli.output import shown
    from sandbox.integrations.mcp_wrap import Lines

    printing = Lock()

    def answer(line: bytes) -> None:
        with printing:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    Thread(target=_read_client, args=(process, wrapped, answer), daemon=True).start()
    lines = Lines()
    for chunk in process.chunks():
        if chunk.stream == "stderr":
            for text in chunk.data.decode(errors="replace").splitlines():
                print(shown(text), file=sys.stderr)
            continue
        for line in lines.add(chunk.data):
            passed = wrapped.from_server(line)
            if passed is not None:
                answer(passed)
    return process.result.exit_code if process.result is not None else 1


def _read_client(process: Process, wrapped: Wrapped, answer: Callable[[bytes], None]) -> None:
    """Passes the client's lines to the server."""
    from sandbox.integrations.mcp_wrap import Lines

    lines = Lines()
    try:
        while data := os.read(0, PIECE):
            for line in lines.add(data):
                passed, answered = wrapped.from_client(line)
                if answered is not None:
                    answer(answered)
                if passed is not None:
                    process.write(passed)
        process.close_stdin()
    except (OSError, SandboxError):
        process.kill()  # the client or the server is gone
