"""One sandbox's life: config, walls, commands, record."""

from __future__ import annotations

import atexit
import os
import sys
from _functools import partial  # `functools` and `threading` are loaded later: see `wiring.py`
from _thread import allocate_lock as Lock
from _thread import get_ident
from _weakref import ref  # `weakref` itself takes half a millisecond to import

from sandbox.audit import access
from sandbox.audit.record import Record
from sandbox.change_methods import ChangeMethods
from sandbox.commands import Commands
from sandbox.config.home import home, record_directory
from sandbox.config.model import Config
from sandbox.engines.choose import choose, default_pids, tightened
from sandbox.engines.require import require
from sandbox.events import Events, event
from sandbox.files import Files
from sandbox.guards.host_guard import HostGuard
from sandbox.guards.tripwire import Reports, arm, require_armed, require_tripwires
from sandbox.layout.etc import hold, ignore
from sandbox.layout.layout import layout, on_host
from sandbox.layout.paths import project_root, writable_trees
from sandbox.network.gate_thread import GateThread
from sandbox.policy.environment import EnvFilter
from sandbox.registry.registration import Registration
from sandbox.wiring import Wiring

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from types import EllipsisType
    from typing import Any, Self

    from sandbox.asks.asking import Asking
    from sandbox.asks.table import Asks
    from sandbox.branches.in_use import InUse
    from sandbox.branches.target import Target
    from sandbox.client import Client
    from sandbox.events import Handler
    from sandbox.guards.file_asks import FileAsks
    from sandbox.info import Ask, Port, Stats
    from sandbox.network.credentials.furnish import Furnishing
    from sandbox.network.credentials.logins import Logins
    from sandbox.vfs.mounts import Mounts
    from sandbox.vfs.provider import Provider

    Asked = Config | Mapping[str, Any] | None

PATIENCE = 10.0  # seconds that a thread waits for another one's close()


class Sandbox(Commands, Files, ChangeMethods):
    """A place behind walls, from construction to `close()`. Safe to use from many threads; any number per process.

    `id` is its name in the registry, `engine` what builds its walls, `config` its configuration, `record` its audit
    log. `notices` are lines that a person should know about it.
    """

    _kept_layer: str | None = None  # an ended sandbox's overlay, to look into it once more: see `bring.py`

    def __init__(
        self,
        config: Asked = None,
        *,
        hooks: object | None = None,
        command: Sequence[str] | None = None,
        resolve: Callable[[str, int], Sequence[str]] | None = None,
    ) -> None:
        """Builds the walls at once. The sandbox owns a copy of `config`: nothing done to either is seen in the other.

        `hooks` see and change requests (docs/hooks.md) and file operations (docs/vfs.md); `command` is what
        `sandbox list` shows; `resolve(host, port)` gives the addresses of allowed hosts in place of the system's
        resolver. Raises ConfigError, EngineUnavailable, WallError or LimitUnavailable; then nothing is left behind.
        """
        if hooks is not None:
            from sandbox.hook_names import names_of

            names_of(hooks)  # one that is misspelt would guard nothing
        plain, self._providers = take_providers(config)
        self.config = tightened(read_config(plain))
        if self.config.credentials:
            from sandbox.config.credential_entries import complete

            self.config.credentials = complete(self.config.credentials)
        self.id = f"vm-{os.urandom(4).hex()}"
        self._hooks = hooks
        self._command = command
        self._resolve = resolve
        self._branch: Target | None = None
        self._branch_in_use: InUse | None = None  # until the commits are there, which is after `close`
        self._events = Events()
        self._lock = Lock()
        self._closed = False
        self._closer = 0  # the thread that closes
        self._gone = Lock()  # held until nothing is left
        self._gone.acquire()
        self.end_reason = ""  # why it ended, when nobody closed it
        self._owner = os.getpid()
        # What gives each part back; the last made goes first. None of it refers to us: a sandbox that is forgotten
        # must be collected at once, not when the collector next looks for cycles.
        self._endings: list[Callable[[], object]] = []
        self._companions: dict[object, Any] = {}
        # A program that forgets us and ends: `__del__` would come too late, when no thread of ours runs any more.
        self._at_exit = partial(close_forgotten, ref(self))
        self._registration: Registration | None = None
        self.notices: list[str] = []  # what a person should know of this sandbox, a line each
        self.record = open_record(self.config, self.id)
        self._questions: list[Asking] = []  # one, once it is needed
        self._asking = partial(asking, self._questions, self.id, self.record, self._events, hooks)
        self._guard = HostGuard(self.record)
        try:
            self._build()
        except BaseException as problem:
            self._closed = True
            self._take_down()
            self.record.write("sandbox_lifecycle", f"failed: {type(problem).__name__}", severity="error")
            self.record.close()
            raise
        atexit.register(self._at_exit)
        limits = self.config.limits
        if limits.lifetime is not None or limits.idle_timeout is not None:
            self._lifetime.set(limits.lifetime, limits.idle_timeout)

    # -- building: each part, once it is there, says how it is given back

    def _build(self) -> None:
        engine = choose(self.config)
        require(self.config, engine)
        self.engine, self._can = engine.name, engine.can
        started = engine.start()  # the launcher works while everything else is decided
        try:
            self._arrange(started.directory)
        except BaseException:
            started.abandon()
            raise
        self._running = started.build(self._plan)
        from sandbox.lifetime import Lifetime
        from sandbox.processes import Processes

        self._processes = Processes()
        self._lifetime = Lifetime(self._processes.__bool__, partial(end_in_time, ref(self)))
        self._endings.append(self._running.close)
        self._plan.environment.update(self._running.environment)
        self._tell_notices()
        if self._can.namespace and self._running.pid is not None and self._layout.search is not None:
            self._guard.check(self._running.pid, self._layout.views, self._layout.search, self._running.missed)
        if self._credentials is not None:
            self._credentials.write(self)
        self._serve()
        if self._branch is not None and self._kept_layer is None:
            self._check_out(self._branch)
        # The door last: whoever comes through it finds everything there.
        self._endings.append(partial(withdraw, self._questions))
        listener = Wiring.listen(self._register().socket, self)
        self._endings.append(listener.close)
        self._drain = listener.drain
        self._lifecycle("ready", mode=self.config.mode, engine=engine.name, masked=self._layout.masked)

    def _arrange(self, directory: str | None) -> None:
        """Decides what is built, and makes what must be there before. `directory` is the tenants' own, if any."""
        filesystem, can = self.config.filesystem, self._can
        self._endings.append(self._guard.finish)
        self._logins = self._known_logins()
        if filesystem.branch is not None:
            self._find_branch(filesystem.branch)
        reserved: list[str] = []
        if can.own_root and not (filesystem.read_only or filesystem.overlay or filesystem.show_host):
            reserved = self._guard.reserve(project_root(filesystem))
        self._mounts = self._own_directories() if has_mounts(self.config) else None
        if can.own_root:
            shown, hiding = (self._mounts.shown, self._mounts.hiding) if self._mounts is not None else ((), ())
            trees = writable_trees(filesystem, shown)
            held = self._guard.reserve_all(filesystem, project_root(filesystem), trees) if filesystem.show_host else []
            trees = writable_trees(filesystem, shown, searched=True)
            repositories = self._guard.trust(trees) if trees else None
            kept = self._kept() if self.config.state.keep else ()
            self._layout = layout(self.config, self.id, os.environ, repositories, shown, hiding, kept=kept)
            ignore(self._layout.plan, reserved)
            if filesystem.show_host:
                hold(self._layout.plan, held)
        else:
            self._layout = on_host(self.config, self.id, os.environ, directory)
        self._plan = self._layout.plan
        self._plan.pids = default_pids(self.config)
        self._plan.proxy_token = os.urandom(16).hex() if can.gate == "proxy" else None
        self._register()
        if self._mounts is not None:
            layer = self._layer()
            self._mounts.furnish(self._plan, layer, self._outside_repository(layer))
            self._register().note("mounts.json", self._mounts.ways)
        if self._layout.caches and can.overlay:
            self._keep_caches()
        self._gate_thread = self._gate()
        self._credentials = self._credential_files()
        if self.config.network.publish:
            self._register().note("ports.json", {"ports": [dict(port) for port in self.ports]})
        if filesystem.ask:
            require_tripwires()
        if can.tripwires:
            arm(self._plan, self._credentials.paths if self._credentials is not None else ())

    def _register(self) -> Registration:
        """Our entry in the registry, made when it is first needed."""
        if self._registration is None:
            secrets = self.config.network.secrets.values()
            held = [one.value or os.environ.get(one.from_env or "", "") for one in secrets]
            more = [value for value in (*held, *(self._logins.values() if self._logins is not None else ())) if value]
            shown = EnvFilter(self.config.environment).redacted(self._command, os.environ, more)
            self._registration = Registration(home(), self.id, self.config.plain(), shown)
        return self._registration

    def _tell_notices(self) -> None:
        """What is hidden, and what of a limit cannot be held here."""
        self.notices += [*self._layout.notices, *([self._running.unheld] if self._running.unheld is not None else [])]
        self.notices += self._logins.notices if self._logins is not None else []
        for notice in self.notices:
            self.record.write("policy_decision", notice, severity="warn")

    def _serve(self) -> None:
        """Starts everything that serves the sandbox and looks after it while it stands."""
        running, plan = self._running, self._plan
        if self.config.filesystem.ask:
            require_armed(plan, running.tripwires)
        if running.tripwires:
            tops = {plan.directory: ".", plan.environment.get("HOME", ""): "~"}
            touches = access.Touches(self.record, self._events, plan.rules(), tops)
            self._endings.append(Reports(running, touches, self._file_asks()).close)
        self._gate_thread.sockets, self._gate_thread.dial = running.take_sockets(), running.dial
        self._gate_thread.pid = running.pid if self._can.namespace else None
        self._gate_thread.start()
        if self._mounts is not None:
            self._mounts.serve(running.take_devices())
        if self.config.vfs.file_events:
            self._report_changes()
        if self._can.namespace:
            self._guard.watch(self.notices.append)
            self._endings.append(self._guard.stop_watching)

    def _file_asks(self) -> FileAsks | None:
        """What asks the owner about a blocked file that is touched."""
        if not self.config.filesystem.ask or self._running.pid is None:
            return None
        from sandbox.guards.file_asks import FileAsks

        patterns, seconds = self.config.filesystem.blocked_patterns, self.config.network.ask_timeout
        tell = partial(access.covered, self.record)
        asks = partial(asks_of, self._asking)
        found = FileAsks(asks, self._running.pid, patterns, seconds, self._guard.lifted, tell)
        self._endings.append(found.close)
        return found

    def _own_directories(self) -> Mounts:
        """The directories that are more than the host's files: see `vfs/arrange.py`."""
        from sandbox.vfs.mounts import Mounts

        tell = partial(tell_of_file, self._events)
        mounts = Mounts(
            self.config, self._providers, hooks=self._hooks, emit=tell, guard=partial(self._guard.serve, self.config)
        )
        self._endings.append(mounts.close)
        return mounts

    def _kept(self) -> list[tuple[str, str]]:
        """The directories that the tenants' home keeps, on the host and inside."""
        from sandbox.state.places import kept

        return kept(self.config.state, project_root(self.config.filesystem))

    def _layer(self) -> str | None:
        """The directory that keeps an overlay project's changes."""
        if not self.config.filesystem.overlay:
            return None
        if self._kept_layer is not None:
            return self._kept_layer
        from sandbox.vfs.workspace import Workspace

        return Workspace.begin(home(), self.id, self._plan.directory).directory

    def _keep_caches(self) -> None:
        """Package caches: docs/caches.md."""
        from sandbox.layout.caches import KeptCaches

        kept = KeptCaches(home(), self._plan.directory, self._register().path)
        self._endings.append(kept.close)
        kept.furnish(self._plan, self._layout.caches)

    # -- a branch of its own: docs/branches.md

    def _find_branch(self, name: str) -> None:
        from sandbox.branches.target import Target

        if self._kept_layer is not None:
            self._branch = Target.load(self._kept_layer)
            return
        from sandbox.branches.in_use import InUse

        self._branch = Target.find(project_root(self.config.filesystem), name)
        self._branch_in_use = InUse(home(), self._branch)

    def _outside_repository(self, layer: str | None) -> tuple[str, str] | None:
        """The repository's directory outside the project, which needs a layer of its own, and where that is kept."""
        if self._branch is None or layer is None:
            return None
        if self._kept_layer is None:
            self._branch.save(layer)
        if self._branch.inside_project:
            return None
        state = os.path.join(layer, "git")
        os.makedirs(state, 0o700, exist_ok=True)
        return self._branch.common, state

    def _check_out(self, branch: Target) -> None:
        from sandbox.branches.inside import Inside

        top = f"{self._plan.directory.rstrip('/')}/"
        Inside(self, branch).check_out(path[len(top) :] for path in self._plan.rules() if path.startswith(top))

    def _gate(self) -> GateThread:
        """What will answer every connection, with the secrets' placeholders where tenants look for them."""
        network = self.config.network
        held: dict[str, str] = {}
        if network.secrets:
            from sandbox.network.secrets.placeholders import placeholders

            held = placeholders(network.secrets)
        if held or self._logins is not None:
            given = self._logins.environment if self._logins is not None else {}
            self._plan.environment.update(given)
            self._plan.environment.update(with_placeholders(self.config.environment.set, {**given, **held}))
        watch = GateThread(
            {},
            network,
            sandbox_id=self.id,
            emit=self._events.emit,
            record=self.record.write,
            dial=nobody_there,
            hooks=self._hooks,
            resolve=self._resolve,
            placeholders=held,
            proxy_token=self._plan.proxy_token,
            logins=self._logins,
            asks=partial(asks_of, self._asking),
        )
        self._endings.append(watch.close)
        watch.furnish(self._plan)
        return watch

    def _known_logins(self) -> Logins | None:
        """The credential files and logins that tenants have placeholders for. Without a gate there are none."""
        if not self.config.credentials or self._can.gate == "none":
            return None
        from sandbox.network.credentials.logins import Logins

        return Logins(self.config.credentials, self._guard.cover_new)

    def _credential_files(self) -> Furnishing | None:
        if self._logins is None:
            return None
        from sandbox.network.credentials.furnish import Furnishing

        return Furnishing(self._logins, self._plan, self._layout.views.inside)

    def _report_changes(self) -> None:
        """Watches what the kernel serves; what goes through FUSE tells by itself."""
        from sandbox.vfs.file_events import FileEvents

        ways = self._mounts.ways if self._mounts else {}
        trees: dict[str, int] = {}
        for path in (self._plan.directory, *ways):
            if ways.get(path) != "FUSE" and path not in trees:
                flags = os.O_RDONLY | os.O_DIRECTORY
                trees[path] = self._running.file("open", os.fsencode(path), flags=flags)[1][0]
        self._endings.append(FileEvents(trees, partial(tell_of_file, self._events)).close)

    # -- the network

    def update_network(self, changes: Mapping[str, Any]) -> None:
        """Changes the network's configuration; new connections see it at once. Raises ConfigError, changing nothing."""
        network = self.config.network.changed(changes)
        self._gate_thread.update(network)
        self.config.network = network
        self._guard.hide_secrets(self.config)
        self.record.write("policy_decision", "network configuration changed", metadata={"keys": ", ".join(changes)})

    def dial(self, port: int, address: str = "127.0.0.1") -> socket.socket:
        """Connects to a TCP port that a program inside listens on. Raises OSError when nobody does, SandboxClosed."""
        self._used()
        return self._running.dial(address, port)

    @property
    def ports(self) -> list[Port]:
        """The published ports (`network.publish`), with the real number where 0 was asked for."""
        from sandbox.info import Port

        published = [(rule, each) for rule, each in self._gate_thread.published if each.fileno() >= 0]
        return [Port(each.getsockname()[0], each.getsockname()[1], rule.inside) for rule, each in published]

    # -- questions to the owner

    def asks(self, watch: bool = False) -> list[Ask]:
        """Returns the questions that wait for an answer (docs/asks.md), the oldest first.

        With `watch`, somebody here follows `ask` events and answers from now on, so questions wait for that. Raises
        SandboxClosed.
        """
        self._used()
        if watch:
            self._asking().watch()
        waiting: list[Ask] = self._asking().waiting()
        return waiting

    def answer(self, id: int, answer: str) -> None:
        """Answers a question: "once", "sandbox" (until this one ends), "always" (in the user's config too) or "deny".

        Raises NotFound when it was answered or its time is over, InvalidArgument, and SandboxError when the config
        cannot be written.
        """
        self._answer(id, answer, "the program")

    def _answer(self, id: int, answer: str, by: str) -> None:
        self._used()
        self._asking().answer(id, answer, by)

    # -- telling

    def _companion(self, kind: Callable[[Self], Any]) -> Any:
        """The one `kind(self)`, made at the first call and closed when the sandbox ends. Raises SandboxClosed."""
        self._used()
        with self._lock:
            made = self._companions.get(kind)
            if made is None:
                made = self._companions[kind] = kind(self)
                self._endings.append(made.close)
            return made

    @staticmethod
    def attach(id: str) -> Client:
        """Returns a client, with the same methods, of a sandbox that runs already. Raises NotFound or SandboxError."""
        return Wiring.attach(id)

    @property
    def log(self) -> str:
        """Where `sandbox logs` looks for what it printed, when it runs detached."""
        assert self._registration is not None
        return self._registration.log

    @property
    def directory(self) -> str:
        """Where commands start, and what relative paths are relative to."""
        return self._plan.directory

    @property
    def environment(self) -> dict[str, str]:
        """The variables that were asked for, as tenants see them: placeholders where a secret was named."""
        return {name: self._plan.environment.get(name, said) for name, said in self.config.environment.set.items()}

    @property
    def _undone(self) -> list[tuple[str, str]]:
        """After `close`: what the host's git would have run, and where it is now ("": it could not be undone)."""
        return self._guard.undone

    @property
    def _made(self) -> list[str]:
        """After `close`: new files that programs on the host act on."""
        return self._guard.made

    def on_event(self, handler: Handler) -> Callable[[], None]:
        """Calls `handler` with every event from now on, in the thread where it happens. Returns what ends that.

        What a handler raises is printed, and changes nothing.
        """
        return self._events.subscribe(handler)

    def stats(self) -> Stats:
        """Returns what the sandbox uses now: memory, processor time, processes. Raises SandboxClosed."""
        from sandbox.info import Stats

        self._used()
        now = self._running.usage()
        return Stats(now.memory_bytes, now.memory_peak_bytes, now.cpu_ms, now.processes, self._lifetime.left)

    # -- the end

    def _lifecycle(self, state: str, **details: str | int) -> None:
        self._ready = True
        self._events.emit(event("lifecycle", state=state, id=self.id))
        self.record.write("sandbox_lifecycle", state, metadata=details)

    _ready = False

    def extend(
        self, lifetime: float | EllipsisType | None = ..., idle_timeout: float | EllipsisType | None = ...
    ) -> None:
        """Changes how long the sandbox lives: `lifetime` seconds from now, and `idle_timeout` seconds without use.

        None: no such end. What is not given stays as it is. Raises InvalidArgument, SandboxClosed.
        """
        self._used()
        self._lifetime.set(lifetime, idle_timeout)

    def _used(self) -> None:
        super()._used()
        self._lifetime.used()

    def close(self, grace: float = 0.0) -> None:
        """Ends every tenant and gives everything back. Idempotent; returns when nothing is left.

        Commands that run have `grace` seconds to end by themselves; no new one is started meanwhile.
        """
        with self._lock:
            first, self._closed = not self._closed, True
            if first:
                self._closer = get_ident()
        if os.getpid() != self._owner:
            atexit.unregister(self._at_exit)
            return  # a fork's copy: the sandbox is not its to end
        if not first:
            # Somebody else closes (`sandbox kill`): a process that ended now would end that half-way.
            if self._closer not in (0, get_ident()):
                # Another thread than the main one may be a handler's, which the end itself waits for.
                from threading import current_thread, main_thread

                main = current_thread() is main_thread()
                if self._gone.acquire(timeout=-1 if main else PATIENCE):
                    self._gone.release()
                if main:  # the process may end now: whoever asked for the end is answered first
                    self._drain()
            return
        try:
            atexit.unregister(self._at_exit)
            self._lifetime.close()
            if grace > 0:
                self._processes.wait(grace)
            self._take_down()
            self._lifecycle("stopped")
            self.record.close()
        finally:
            self._gone.release()

    def _take_down(self) -> None:
        while self._endings:
            self._endings.pop()()
        if self._registration is not None:
            self._registration.end() if self._ready else self._registration.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._ready and not sys.is_finalizing():
            self.close()

    def __repr__(self) -> str:
        return f"<Sandbox {self.id} {self.engine}{' closed' if self._closed else ''}>"


def close_forgotten(sandbox: ref[Sandbox]) -> None:
    """At the end of the program."""
    if (living := sandbox()) is not None:
        living.close()


def end_in_time(sandbox: ref[Sandbox], reason: str) -> None:
    """Its lifetime is over, or nobody uses it."""
    if (living := sandbox()) is not None:
        living.end_reason = reason
        living.record.write("sandbox_lifecycle", f"ending: {reason}")
        living.close()


def tell_of_file(events: Events, operation: str, path: str, size: int) -> None:
    """A change to a file, in the shape that events have."""
    events.emit(event("file", op=operation, path=path, size=size))


def nobody_there(address: str, port: int) -> socket.socket:
    """How the gate reaches inside before the walls stand: not at all."""
    raise ConnectionRefusedError(f"{address}:{port}: the sandbox is not ready")


def asking(made: list[Asking], *parts: Any) -> Asking:
    """A sandbox's questions to its owner; imported when there is one, or somebody waits for one."""
    if not made:
        from sandbox.asks.asking import Asking

        made.append(Asking(*parts))
    return made[0]


def asks_of(made: Callable[[], Asking]) -> Asks:
    """The same for the gate."""
    return made().asks()


def withdraw(made: list[Asking]) -> None:
    """Nobody waits for an answer any more."""
    for one in made:
        one.close()


def take_providers(config: Asked) -> tuple[Asked, dict[str, Provider]]:
    """Provider objects among a caller's `vfs.mounts`, apart from the plain rest."""
    if config is None or isinstance(config, Config) or not (config.get("vfs") or {}).get("mounts"):
        return config, {}
    from sandbox.vfs.arrange import take_providers

    return take_providers(config)


def has_mounts(config: Config) -> bool:
    """Whether there are directories that are more than the host's files; most sandboxes have none."""
    vfs = config.vfs
    return bool(vfs.mounts or vfs.direct_mounts or config.filesystem.overlay)


def read_config(config: Asked) -> Config:
    """The configuration as one model, the caller's own left as it is. Raises ConfigError."""
    if isinstance(config, Config):
        return config.copy()
    given = dict(config or {})
    if any(name in given for name in ("resources", "env", "network", "filesystem")):
        from sandbox.config.dialects import from_client, looks_like_srt

        if "resources" in given or "env" in given or looks_like_srt(given):
            given = from_client(given)
    return Config.read(given)


def with_placeholders(asked: Mapping[str, str], held: Mapping[str, str]) -> dict[str, str]:
    """The variables that name a secret (`${NAME}`), with its placeholder instead."""
    found: dict[str, str] = {}
    for variable, value in asked.items():
        for name, placeholder in held.items():
            value = value.replace(f"${{{name}}}", placeholder)
        if value != asked[variable]:
            found[variable] = value
    return found


def open_record(config: Config, identity: str) -> Record:
    """The record this sandbox writes to. Raises SandboxError: without a record nothing runs."""
    return Record(record_directory(config), sandbox=identity, rotate_size=config.audit.rotate_size)
