"""Running commands in a sandbox of another process: the part of `Client` that asks for them over JSON-RPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox import arguments
from sandbox.command_methods import CommandMethods
from sandbox.errors import InvalidArgument
from sandbox.info import ProcessInfo
from sandbox.rpc.remote import WINDOW, Ended, RemoteProcess, result_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.arguments import Command
    from sandbox.result import ExecResult, Output
    from sandbox.rpc.connection import Connection

MOST_AT_ONCE = 64 * 2**20  # bytes of each output that fit one answer


class ClientCommands(CommandMethods):
    """What `Client` can do with commands."""

    _connection: Connection

    def processes(self) -> list[ProcessInfo]:
        """Returns the commands that run now, whoever started them: here, or over another connection."""
        told = self._connection.call("processes", {})["processes"]
        return [
            ProcessInfo(one["pid"], one["id"], one["command"], one["started"], one.get("keep"), one["tty"])
            for one in told
        ]

    def connect(self, name: str) -> RemoteProcess:
        """Joins the command that was started with `keep=name`; what it printed last comes first.

        Raises NotFound when no command of that name runs.
        """
        asked = {"keep": arguments.kept_name(name), "credit": WINDOW}
        return RemoteProcess(self._connection, self._connection.stream("connect", asked), kept=True)

    def _collect(
        self,
        output: Output,
        command: Command,
        directory: str | None,
        *,
        env: Mapping[str, str] | None,
        input: bytes | None,
        timeout: float | None,
    ) -> ExecResult:
        if output.listened or output.limit > MOST_AT_ONCE:
            return super()._collect(output, command, directory, env=env, input=input, timeout=timeout)
        asked = _asked(command, directory, env, timeout) | _input(input) | {"max_output": output.limit}
        return result_of(self._connection.call("exec", asked, Ended))

    def _begin(
        self,
        command: Command,
        directory: str | None,
        *,
        env: Mapping[str, str] | None,
        input: bytes | None,
        timeout: float | None,
    ) -> RemoteProcess:
        asked = _asked(command, directory, env, timeout) | _input(input) | {"credit": WINDOW}
        return RemoteProcess(self._connection, self._connection.stream("exec_stream", asked), announced=False)

    def _spawned(
        self,
        command: Command,
        directory: str | None,
        *,
        env: Mapping[str, str] | None,
        timeout: float | None,
        pty: tuple[int, int] | None,
        keep: str | None,
    ) -> RemoteProcess:
        asked = _asked(command, directory, env, timeout) | {"credit": WINDOW}
        if keep is not None:
            asked["keep"] = keep
        kept = keep is not None
        if pty is None:
            return RemoteProcess(self._connection, self._connection.stream("exec_pipe", asked), kept=kept)
        asked |= {"rows": pty[0], "cols": pty[1]}
        return RemoteProcess(self._connection, self._connection.stream("exec_tty", asked), tty=True, kept=kept)


def _asked(
    command: Command, directory: str | None, env: Mapping[str, str] | None, timeout: float | None
) -> dict[str, Any]:
    words = arguments.words(command)
    asked: dict[str, Any] = {"command": words if isinstance(words, str) else [_text(word) for word in words]}
    if directory is not None:
        asked["working_dir"] = directory or "."
    if variables := arguments.variables(env):
        asked["env"] = variables
    if (seconds := arguments.seconds(timeout)) is not None:
        asked["timeout"] = seconds
    return asked


def _text(word: str | bytes) -> str:
    try:
        return word if isinstance(word, str) else word.decode()
    except UnicodeDecodeError:
        raise InvalidArgument("JSON-RPC carries text: {text!r} is not UTF-8", text=word) from None


def _input(given: bytes | None) -> dict[str, Any]:
    return {} if given is None else {"stdin": given}
