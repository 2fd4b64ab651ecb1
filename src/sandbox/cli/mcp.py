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
    from sandbox.integrations.mcp_questions import Questions
    from sandbox.integrations.mcp_wrap import Wrapped
    from sandbox.protocols import Process

LEFT_OUT = ("--detach", "--json", "--branch", "--commit-rest", "--force", "--profile", "--trust")
PIECE = 65536
IDLE = 3600.0  # seconds without a call after which a session over HTTP ends


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox mcp [options]\n       sandbox mcp [options] wrap [--] server…"
    from sandbox.cli.options import add_to

    add_to(parser, [one for one in run_command.OPTIONS if one.name not in LEFT_OUT])
    option = parser.add_argument
    option("--http", type=int, metavar="PORT", help=_("serve streamable HTTP on this loopback port"))
    option("--idle", type=float, metavar="SECONDS", help=_("with --http: end a session after this long without a call"))
    option("--name", metavar="NAME", help=_("wrap: the server's name, under which its tools are remembered"))
    option("--accept", action="store_true", help=_("wrap: accept the tools' current descriptions from now on"))


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
        from sandbox.integrations.mcp_sessions import SessionSandboxes
    except ImportError as problem:
        raise SandboxError(
            "the MCP server needs {module}; install it with: pip install 'agent-sandbox[mcp]'", module=problem.name
        ) from problem
    resolved = run_command.configuration(arguments)
    for ignored in resolved.warnings:
        run_command.tell_ignored(ignored)

    def make(questions: Questions) -> AsyncSandbox:
        from sandbox.aio import AsyncSandbox

        config = resolved.config
        hooks = questions if config.network.ask or config.filesystem.ask else None
        return AsyncSandbox(config, command=["sandbox", "mcp"], hooks=hooks)

    if arguments.http is None:
        make_server(SessionSandboxes(make)).run()
        return 0
    from sandbox.integrations.mcp_http import serve

    idle = IDLE if arguments.idle is None else arguments.idle
    if not 0 < idle < float("inf"):
        raise SandboxError("--idle must be a number of seconds above 0")
    sandboxes = SessionSandboxes(make, idle)
    return serve(make_server(sandboxes), sandboxes, arguments.http, idle, _tell_address)


def _tell_address(address: str, token: str) -> None:
    print(f"{address}\nAuthorization: Bearer {token}", file=sys.stderr, flush=True)


# -- another server


def _wrap(arguments: Namespace, command: list[str]) -> int:
    from sandbox.integrations.mcp_wrap import KnownWords, Wrapped, name_for
    from sandbox.service import create

    known = KnownWords(arguments.name or name_for(command))
    if arguments.accept:
        known.forget()
    with create(run_command.configuration(arguments), command=command, tell=run_command.tell_ignored) as sandbox:
        wrapped = Wrapped(known, sandbox.record.write, _tell)
        with sandbox.spawn(command) as process:
            return _relay(process, wrapped)


def _tell(name: str) -> None:
    from sandbox.cli.output import shown

    line = _("sandbox: the MCP server changed its description of {name}, which is withheld until you run with --accept")
    print(line.format(name=shown(name)), file=sys.stderr)


def _relay(process: Process, wrapped: Wrapped) -> int:
    """Moves lines both ways until the server ends, or the client has sent everything and the server has answered."""
    from threading import Lock, Thread

    from sandbox.cli.output import shown
    from sandbox.integrations.mcp_wrap import StreamLines

    printing = Lock()

    def answer(line: bytes) -> None:
        with printing:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    Thread(target=_read_client, args=(process, wrapped, answer), daemon=True).start()
    lines = StreamLines()
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
    from sandbox.integrations.mcp_wrap import StreamLines

    lines = StreamLines()
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
