"""A sandbox in another process, with the methods of `Sandbox`.

    with Client({"network": {"allowed_hosts": ["packages.example.org"]}}) as sb:   # starts `sandbox --rpc`
        print(sb.exec("echo hello").stdout)

    sb = attach("vm-a1b2c3d4")                                         # a sandbox that runs already

Errors are the same exceptions that `Sandbox` raises; an error without a counterpart there is an `RpcError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandbox import arguments
from sandbox.client_commands import ClientCommands
from sandbox.client_desktop import ClientDesktop
from sandbox.client_files import ClientFiles
from sandbox.desktop.methods import BrowserEndpoints
from sandbox.errors import InvalidArgument, SandboxClosed
from sandbox.info import Ask, Checkpoint, Port, Stats
from sandbox.rpc import errors
from sandbox.rpc.connection import Connection
from sandbox.rpc.errors import RpcError

if TYPE_CHECKING:
    import socket
    from types import EllipsisType
    from typing import Self

    from sandbox.events import Handler
    from sandbox.home_gate import HomeGate


class Client(ClientCommands, ClientFiles):
    """Drives one sandbox over JSON-RPC. Safe to use from many threads.

    `id` is its name in the registry, `engine` what builds its walls, `directory` where commands start, `environment`
    the variables that were asked for, as tenants see them.
    """

    _first_call = "create"
    _home: HomeGate | None = None  # the gate, with `network.gate: client`

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
        asked, self._home = _asked(dict(config or {}), hooks)
        self._connection = connection or Connection.start(command or _server())
        self._owns = connection is None or create
        self._reach: Callable[[str], Connection] = _by_socket  # how to reach another sandbox of the same owner
        if hooks is not None:
            from sandbox.rpc.hooks import answer

            offered = tuple(asked["hooks"])
            self._connection.hook = lambda params: answer(hooks, params, offered)
        try:
            self._learn(self._connection.call(self._first_call, asked) if self._owns else self._info())
            if self._home is not None:
                self._home.serve(self._connection, self.id)
        except BaseException:
            self._connection.close()
            self._close_home()
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
        if self._home is not None:
            return self._home.ports
        return [Port(**one) for one in self._connection.call("ports", {})["ports"]]

    def update_network(self, changes: Mapping[str, Any]) -> None:
        """Changes the network's configuration; new connections see it at once. Raises ConfigError, changing nothing."""
        if self._home is not None:
            self._home.update(changes)
        else:
            self._connection.call("update_network", dict(changes))

    def asks(self, watch: bool = False) -> list[Ask]:
        """Returns the questions that wait for an answer (docs/asks.md), the oldest first.

        With `watch`, the caller follows `ask` events and answers them from now on, so questions wait for its answer.
        Raises SandboxClosed.
        """
        there = self._connection.call("asks", {"watch": watch})["asks"]
        return [Ask(**one) for one in there] if self._home is None else self._home.asks(watch, there)

    def answer(self, id: int, answer: str) -> None:
        """Answers a question: "once", "sandbox" (until this one ends), "always" (in the user's config too) or "deny".

        Raises NotFound when it was already answered or has expired, InvalidArgument, and SandboxError when the config
        cannot be written.
        """
        self._answer(id, answer, "")

    def _answer(self, id: int, answer: str, by: str) -> None:
        there = id if self._home is None else self._home.answer(id, answer, by or "the program")
        if there:
            self._connection.call("answer", {"ask": there, "answer": answer, "by": by})

    def dial(self, port: int, address: str = "127.0.0.1") -> socket.socket:
        """Connects to a TCP port that a program inside listens on. Raises OSError when none does, SandboxClosed.

        The socket is one end of a pair; the client passes on what goes through its other end to the sandbox and back.
        """
        from sandbox.rpc.tunnel import tunnel

        return tunnel(self._connection, "dial", {"port": port, "address": address})

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
            if self._home is not None:
                fork._home = self._home.forked(fork._connection, id)
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
                self._close_home()
        else:
            self._connection.close()
            self._close_home()

    def _close_home(self) -> None:
        if self._home is not None:
            self._home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client {self.id} {self.engine}{' closed' if self._connection.ended else ''}>"


def _asked(config: dict[str, Any], hooks: object | None) -> tuple[dict[str, Any], HomeGate | None]:
    """What the server is asked for, and the gate, if it is here. Raises ConfigError."""
    home: HomeGate | None = None
    if gate_at_home(config):
        from sandbox.home_gate import HomeGate

        home = HomeGate(config, hooks)
        config = home.there()
    if hooks is not None:
        from sandbox.rpc.hooks import named

        config["hooks"] = named(hooks, home.hooks_there() if home is not None else None)
    return config, home


def gate_at_home(config: Mapping[str, Any]) -> bool:
    """Whether a configuration asks for the gate in this process: `network.gate: client`."""
    network = config.get("network")
    return isinstance(network, dict) and network.get("gate") == "client"


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
