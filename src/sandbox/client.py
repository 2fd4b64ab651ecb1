"""A sandbox in another process, with the methods of `Sandbox`.

    with Client({"network": {"allowed_hosts": ["packages.example.org"]}}) as sb:   # starts `sandbox --rpc`
        print(sb.exec("echo hello").stdout)

    sb = attach("vm-a1b2c3d4")                                         # a sandbox that runs already

Errors are the same exceptions that `Sandbox` raises; an error without a counterpart there is an `RpcError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandbox import arguments
from sandbox.client_desktop import ClientDesktop
from sandbox.client_files import ClientFiles
from sandbox.desktop.methods import BrowserEndpoints
from sandbox.errors import InvalidArgument, SandboxClosed
from sandbox.info import Ask, Checkpoint, Port, ProcessInfo, Stats
from sandbox.result import OUTPUT_LIMIT, Chunk, ExecResult, Output
from sandbox.rpc import errors
from sandbox.rpc.connection import Connection
from sandbox.rpc.errors import RpcError
from sandbox.rpc.remote import WINDOW, Ended, RemoteProcess, result_of

if TYPE_CHECKING:
    import socket
    from types import EllipsisType
    from typing import Self

    from sandbox.arguments import Command, Path
    from sandbox.events import Handler
    from sandbox.result import Listener
    from sandbox.sessions.session import CodeSession

MOST_AT_ONCE = 64 * 2**20  # bytes of each output that fit one answer


class Client(ClientFiles):
    """Drives one sandbox over JSON-RPC. Safe to use from many threads.

    `id` is its name in the registry, `engine` what builds its walls, `directory` where commands start, `environment`
    the variables that were asked for, as tenants see them.
    """

    _first_call = "create"

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        hooks: object | None = None,
        command: Sequence[str] | None = None,
        connection: Connection | None = None,
        create: bool = False,
    ) -> None:
        """Starts a server and creates a sandbox there, or talks over a `connection` that has one already.

        With `create`, a sandbox is created over the `connection`, too.

        The server is `command`, else the one that the variable SANDBOX_COMMAND names, else `sandbox`, with `--rpc`.
        `hooks` is an object as for `Sandbox`; its functions run in this process, in threads.
        Raises what `Sandbox` raises, and SandboxError when the server cannot be started.
        """
        if connection is not None and not create and (config is not None or hooks is not None):
            raise InvalidArgument("a sandbox that runs already takes neither a configuration nor hooks")
        asked = dict(config or {})
        if hooks is not None:
            from sandbox.rpc.hooks import named

            asked["hooks"] = named(hooks)
        self._connection = connection or Connection.start(command or _server())
        self._owns = connection is None or create
        self._reach: Callable[[str], Connection] = _by_socket  # how to reach another sandbox of the same owner
        if hooks is not None:
            from sandbox.rpc.hooks import answer

            self._connection.hook = lambda params: answer(hooks, params)
        try:
            self._learn(self._connection.call(self._first_call, asked) if self._owns else self._info())
        except BaseException:
            self._connection.close()
            raise

    def _info(self) -> dict[str, Any]:
        try:
            told: dict[str, Any] = self._connection.call("info", {})
        except RpcError as problem:
            if problem.code != errors.NO_SUCH_METHOD:  # a sandbox that an older version started
                raise
            return {}
        return told

    def _learn(self, told: dict[str, Any]) -> None:
        self.id: str = told.get("id", "")
        self.engine: str = told.get("engine", "")
        self.directory: str = told.get("directory", "")
        self.environment: dict[str, str] = told.get("env", {})

    @property
    def env(self) -> dict[str, str]:
        """The same as `environment`."""
        return self.environment

    @property
    def ports(self) -> list[Port]:
        """The published ports (`network.publish`), with the real number where 0 was asked for."""
        return [Port(**one) for one in self._connection.call("ports", {})["ports"]]

    # -- commands

    def exec(
        self,
        command: Command,
        working_dir: Path | None = None,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        check: bool = False,
        max_output: int = OUTPUT_LIMIT,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
    ) -> ExecResult:
        """Runs a command to its end and returns its result, as `Sandbox.exec`; raises what that raises."""
        output = Output(max_output, on_stdout, on_stderr)
        asked = _asked(command, working_dir, cwd, env, timeout) | _input(input, stdin)
        if on_stdout is None and on_stderr is None and max_output <= MOST_AT_ONCE:
            result = result_of(self._connection.call("exec", asked | {"max_output": max_output}, Ended))
        else:
            with self._streamed(asked) as process:
                for chunk in process.chunks():
                    output.add(chunk)
                assert process.result is not None
                result = output.into(process.result)
        if check:
            result.check(arguments.name(command))
        return result

    def exec_stream(
        self,
        command: Command,
        working_dir: Path | None = None,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
    ) -> Iterator[Chunk | ExecResult]:
        """Runs a command as `exec` does. Yields its output as it comes, and the result, without output, last.

        Stopping the iteration kills the command. A slow reader slows the command down. Raises what `exec` raises.
        """
        with self._streamed(_asked(command, working_dir, cwd, env, timeout) | _input(input, stdin)) as process:
            yield from process.chunks()
            assert process.result is not None
            yield process.result

    def spawn(
        self,
        command: Command,
        working_dir: Path | None = None,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        pty: tuple[int, int] | None = None,
        keep: str | None = None,
    ) -> RemoteProcess:
        """Starts a command and returns it as soon as it runs; the caller talks to it and closes it.

        With `pty` (rows, columns) it runs on a terminal, else on pipes. With `keep` (a name) it goes on running when
        it is closed here, and `connect` joins it; when a command of that name runs already, that one is returned.
        Raises CommandError when it cannot be started, InvalidArgument, SandboxClosed.
        """
        asked = _asked(command, working_dir, cwd, env, timeout) | {"credit": WINDOW}
        if arguments.kept_name(keep) is not None:
            asked["keep"] = keep
        if (size := arguments.size(pty)) is None:
            return RemoteProcess(self._connection, self._connection.stream("exec_pipe", asked))
        asked |= {"rows": size[0], "cols": size[1]}
        return RemoteProcess(self._connection, self._connection.stream("exec_tty", asked), tty=True)

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
        return RemoteProcess(self._connection, self._connection.stream("connect", asked))

    def python(self, kernel: str = "auto") -> CodeSession:
        """Returns a Python inside that keeps its state between calls: `run("1 + 1").text` is "2".

        It is a Jupyter kernel where `ipykernel` is inside, else our own small interpreter; "jupyter" or "plain" asks
        for that one. It starts with the first `run`. Raises InvalidArgument.
        """
        return self.session("python", kernel)

    def session(self, language: str, kernel: str = "auto") -> CodeSession:
        """Returns an interpreter inside that keeps its state between calls: "python", "node" or "bash".

        Raises InvalidArgument.
        """
        from sandbox.sessions.languages import open_session

        return open_session(self, language, kernel)

    def _begin(
        self, command: Command, directory: str | None, *, env: Mapping[str, str] | None, input: bytes | None,
        timeout: float | None,
    ) -> RemoteProcess:  # fmt: skip
        """Starts a command the way `AsyncSandbox` does."""
        return self._streamed(_asked(command, directory, None, env, timeout) | _input(input, None))

    def _streamed(self, asked: dict[str, Any]) -> RemoteProcess:
        stream = self._connection.stream("exec_stream", asked | {"credit": WINDOW})
        return RemoteProcess(self._connection, stream, announced=False)

    # -- the rest

    def update_network(self, changes: Mapping[str, Any]) -> None:
        """Changes the network's configuration; new connections see it at once. Raises ConfigError, changing nothing."""
        self._connection.call("update_network", dict(changes))

    def asks(self, watch: bool = False) -> list[Ask]:
        """Returns the questions that wait for an answer (docs/asks.md), the oldest first.

        With `watch`, the caller follows `ask` events and answers them from now on, so questions wait for its answer.
        Raises SandboxClosed.
        """
        return [Ask(**one) for one in self._connection.call("asks", {"watch": watch})["asks"]]

    def answer(self, id: int, answer: str) -> None:
        """Answers a question: "once", "sandbox" (until this one ends), "always" (in the user's config too) or "deny".

        Raises NotFound when it was already answered or has expired, InvalidArgument, and SandboxError when the config
        cannot be written.
        """
        self._answer(id, answer, "")

    def _answer(self, id: int, answer: str, by: str) -> None:
        self._connection.call("answer", {"ask": id, "answer": answer, "by": by})

    def dial(self, port: int, address: str = "127.0.0.1") -> socket.socket:
        """Connects to a TCP port that a program inside listens on. Raises OSError when none does, SandboxClosed.

        The socket is one end of a pair; the client passes on what goes through its other end to the sandbox and back.
        """
        from sandbox.rpc.tunnel import tunnel

        return tunnel(self._connection, port, address)

    @property
    def desktop(self) -> ClientDesktop:
        """A screen, keyboard, mouse and sound of the sandbox's own, as `Sandbox.desktop`: docs/desktop.md."""
        return ClientDesktop(self._connection)

    def browser(self) -> BrowserEndpoints:
        """Starts a browser inside, unless it runs, and returns where Playwright and Selenium find it: docs/desktop.md.

        Those are addresses of the machine that the sandbox is on. Raises what `Sandbox.browser` raises.
        """
        return BrowserEndpoints(**self._connection.call("browser", {}))

    def on_event(self, handler: Handler) -> Callable[[], None]:
        """Calls `handler` with every event from now on, in a thread of its own. Returns what unsubscribes it.

        An exception in a handler is printed and otherwise ignored.
        """
        return self._connection.events.subscribe(handler)

    def stats(self) -> Stats:
        """Returns what the sandbox uses now: memory, processor time, processes. Raises SandboxClosed."""
        told = self._connection.call("stats", {})
        return Stats(**{name: told.get(name) for name in Stats.fields})

    def pause(self) -> None:
        """Stops everything inside until `resume`. Nothing can be run or read meanwhile: that raises SandboxError.

        Idempotent. Raises SandboxError where the engine cannot do it, WallError, SandboxClosed.
        """
        self._connection.call("pause", {})

    def resume(self) -> None:
        """Lets everything inside go on. Idempotent. Raises WallError, SandboxClosed."""
        self._connection.call("resume", {})

    def checkpoint(self, name: str | None = None) -> Checkpoint:
        """Saves the sandbox under a name, for `restore`; it goes on running. See docs/checkpoints.md.

        Raises what `Sandbox.checkpoint` raises.
        """
        told = self._connection.call("checkpoint", {} if name is None else {"name": name})
        return Checkpoint(*(told[field] for field in Checkpoint.fields))

    def fork(self, n: int = 1) -> list[Self]:
        """Returns `n` new sandboxes that go on from here, as `Sandbox.fork`; raises what that raises.

        The process that owns this sandbox owns them too: they end with it, or when they are closed here.
        """
        forks: list[Self] = []
        for id in self._connection.call("fork", {"n": n})["ids"]:
            fork = type(self)(connection=self._reach(id))
            fork._owns, fork._reach = True, self._reach
            forks.append(fork)
        return forks

    @classmethod
    def restore(cls, name: str, config: Mapping[str, Any] | None = None, *, hooks: object | None = None) -> Self:
        """Starts a server with a sandbox that goes on from a checkpoint, as `Sandbox.restore`.

        Raises what that raises, and SandboxError when the server cannot be started.
        """
        made = cls.__new__(cls)
        made._first_call = "restore"
        made.__init__({"checkpoint": name, "config": dict(config or {})}, hooks=hooks)  # type: ignore[misc]
        return made

    def extend(
        self, lifetime: float | EllipsisType | None = ..., idle_timeout: float | EllipsisType | None = ...
    ) -> None:
        """Changes how long the sandbox lives: `lifetime` seconds from now, and `idle_timeout` seconds without use.

        None removes that limit. A limit that is not given stays as it is. Raises InvalidArgument, SandboxClosed.
        """
        given = {"lifetime": lifetime, "idle_timeout": idle_timeout}
        asked = {name: arguments.seconds(value, name) for name, value in given.items() if value is not ...}
        self._connection.call("extend", asked)

    def close(self, grace: float = 0.0) -> None:
        """Ends the sandbox if this client started it, else only disconnects. Idempotent.

        Running commands have `grace` seconds to end by themselves; no new one is started meanwhile.
        """
        if self._owns and not self._connection.ended:
            try:
                self._connection.call("close", {"grace": grace})
            except SandboxClosed:
                pass  # it has already ended
            finally:
                self._connection.close()
        else:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client {self.id} {self.engine}{' closed' if self._connection.ended else ''}>"


def attach(id: str) -> Client:
    """A client of a sandbox that runs already. Raises NotFound, or SandboxError when it cannot be reached."""
    from sandbox.registry.api import get_sandbox

    entry = get_sandbox(id)
    client = Client(connection=Connection.to_socket(entry))
    client.id = entry.id
    return client


def _by_socket(id: str) -> Connection:
    from sandbox.registry.api import get_sandbox

    return Connection.to_socket(get_sandbox(id))


def _server() -> list[str]:
    return [*(os.environ.get("SANDBOX_COMMAND", "").split() or ["sandbox"]), "--rpc"]


def _asked(
    command: Command, working_dir: Path | None, cwd: Path | None, env: Mapping[str, str] | None, timeout: float | None
) -> dict[str, Any]:
    words = arguments.words(command)
    asked: dict[str, Any] = {"command": words if isinstance(words, str) else [_text(word) for word in words]}
    if (directory := arguments.directory(working_dir, cwd)) is not None:
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


def _input(input: bytes | str | None, stdin: bytes | str | None) -> dict[str, Any]:
    given = arguments.whole_input(input, stdin)
    return {} if given is None else {"stdin": given}
