"""One sandbox's life: config, walls, commands, record."""

from __future__ import annotations

import atexit
import os
import sys
from _functools import partial  # `functools` and `threading` are loaded later: see `wiring.py`
from _thread import allocate_lock as Lock
from _thread import get_ident
from _weakref import ref  # `weakref` itself takes half a millisecond to import

from sandbox.audit.record import Record
from sandbox.building import Building, take_providers
from sandbox.change_methods import ChangeMethods
from sandbox.checkpoint_methods import CheckpointMethods
from sandbox.commands import Commands
from sandbox.config.from_program import read_config
from sandbox.config.home import record_directory
from sandbox.connecting import Connect, remote
from sandbox.engines.choose import choose, with_mode_defaults
from sandbox.engines.require import require
from sandbox.events import Events, event
from sandbox.files import Files
from sandbox.guards.host_guard import HostGuard
from sandbox.owner_methods import OwnerMethods
from sandbox.serving import settle, withdraw
from sandbox.wiring import Wiring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import EllipsisType
    from typing import Any, Self

    from sandbox.asks.lazy_asks import Asking
    from sandbox.branches.branch_lock import InUse
    from sandbox.branches.target import Target
    from sandbox.client import Client
    from sandbox.config.from_program import Given
    from sandbox.config.model import Config
    from sandbox.engines.base import Started
    from sandbox.registry.registration import Registration

PATIENCE = 10.0  # seconds that a thread waits for another one's close()


class Sandbox(Building, Commands, Files, ChangeMethods, CheckpointMethods, OwnerMethods):
    """A place behind walls, from construction to `close()`. Safe to use from many threads; any number per process.

    `id` is its name in the registry, `engine` what builds its walls, `config` its configuration, `record` its audit
    log. `notices` are lines that a person should know about it.
    """

    _attachable = True  # other processes of this user can attach to it
    _launched: Started | None = None  # a launcher that was started before the sandbox: see `with_launcher`
    _kept_layer: str | None = None  # the overlay of an ended sandbox that is opened again: see `bring_branch.py`

    def __init__(
        self,
        config: Given = None,
        *,
        hooks: object | None = None,
        command: Sequence[str] | None = None,
        resolve: Callable[[str, int], Sequence[str]] | None = None,
    ) -> None:
        """Builds the walls at once. The sandbox has its own copy of `config`: changing one does not change the other.

        `hooks` see and change requests (docs/hooks.md) and file operations (docs/vfs.md); `command` is what
        `sandbox list` shows; `resolve(host, port)` gives the addresses of allowed hosts in place of the system's
        resolver. Raises ConfigError, EngineUnavailable, WallError or LimitUnavailable; then nothing is left behind.
        """
        if hooks is not None:
            from sandbox.hook_names import names_of

            names_of(hooks)  # raises for a misspelt hook, which would guard nothing
        self._take(config)
        self.id = f"vm-{os.urandom(4).hex()}"
        self._hooks = hooks
        self._command = command
        self._resolve = resolve
        self._initial_state()
        self._registration: Registration | None = None
        self.notices: list[str] = []  # what a person should know about this sandbox, a line each
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
        self._begin_life()

    def _take(self, config: Given) -> None:
        """Makes a complete copy of `config`. Raises ConfigError."""
        plain, self._providers = take_providers(config)
        self.config = with_mode_defaults(read_config(plain))
        if self.config.credentials:
            from sandbox.config.credential_entries import complete

            self.config.credentials = complete(self.config.credentials)

    def _initial_state(self) -> None:
        """What a sandbox has from its first moment to its last."""
        self._branch: Target | None = None
        self._branch_in_use: InUse | None = None  # held until the commits are brought over, after `close`
        self._events = Events()
        self._lock = Lock()
        self._saving, self._changing_network = Lock(), Lock()
        self._forks = []
        self._closed = False
        self._closer = 0  # the thread that closes
        self._gone = Lock()  # held until nothing is left
        self._gone.acquire()
        self._drain: Callable[[], None] = _nothing
        self.end_reason = ""  # why it ended, when nobody closed it
        self._owner = os.getpid()
        # What closes each part; the part made last goes first. None of these refers to the sandbox: when nobody uses it
        # any more it must be collected at once, not when the collector next looks for cycles.
        self._endings: list[Callable[[], object]] = []
        self._companions: dict[object, Any] = {}
        # For a program that ends without closing it: `__del__` would come too late, when our threads no longer run.
        self._at_exit = partial(close_forgotten, ref(self))

    def _begin_life(self) -> None:
        limits = self.config.limits
        if limits.lifetime is not None or limits.idle_timeout is not None:
            self._lifetime.set(limits.lifetime, limits.idle_timeout)
        if self.config.desktop.start or self.config.browser.auto_start:
            self._start_desktop()

    def _start_desktop(self) -> None:
        try:
            if self.config.desktop.start:
                self.desktop.start()
            if self.config.browser.auto_start and self.config.browser.enabled:
                self._browser.start()
        except BaseException:
            self.close()
            raise

    # -- building: the parts are in `building.py`

    def _build(self) -> None:
        engine = choose(self.config)
        require(self.config, engine)
        if self.config.image is not None:
            engine.bring_image(self.config)
        self.engine, self._can = engine.name, engine.can
        started = self._launched or engine.start()  # the launcher works while everything else is decided
        try:
            self._arrange(started.directory)
            started.begin(self._plan)
            self._register()  # before any tenant exists, while the walls are being built: costs no time
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
        # The socket for other processes comes last: whoever connects finds everything ready.
        self._endings.append(partial(withdraw, self._questions))
        if self._attachable:
            listener = Wiring.listen(self._register().socket, self)
            self._endings.append(listener.close)
            self._endings.append(partial(settle, self._questions))
            self._drain = listener.drain
        self._register().check_switch()  # it may have been pulled since the entry was made
        self._lifecycle("ready", mode=self.config.mode, engine=engine.name, masked=self._layout.masked)

    def _check_out(self, branch: Target) -> None:
        from sandbox.branches.git_inside import GitInside

        top = f"{self._plan.directory.rstrip('/')}/"
        GitInside(self, branch).check_out(path[len(top) :] for path in self._plan.rules() if path.startswith(top))

    @staticmethod
    def attach(id: str) -> Client:
        """Returns a client, with the same methods, of a sandbox that runs already. Raises NotFound or SandboxError."""
        return Wiring.attach(id)

    connect = Connect()
    remote = staticmethod(remote)  # the same as `Sandbox.connect`

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

        None removes that limit. A limit that is not given stays as it is. Raises InvalidArgument, SandboxClosed.
        """
        self._alive()
        self._lifetime.set(lifetime, idle_timeout)

    def _used(self) -> None:
        self._alive()
        self._not_paused()

    def _alive(self) -> None:
        self._not_closed()
        self._lifetime.used()

    def _not_closed(self) -> None:
        """For what only looks: a server's `/metrics` must not keep every sandbox from being idle."""
        super()._used()

    def close(self, grace: float = 0.0) -> None:
        """Ends every tenant and gives everything back. Idempotent; returns when nothing is left.

        Running commands have `grace` seconds to end by themselves; no new one is started meanwhile.
        """
        with self._lock:
            first, self._closed = not self._closed, True
            if first:
                self._closer = get_ident()
        if os.getpid() != self._owner:
            atexit.unregister(self._at_exit)
            return  # a forked child's copy: the sandbox belongs to the parent
        if not first:
            # Another thread is closing it (`sandbox kill`): if the process ended now, that would stop half-way.
            if self._closer not in (0, get_ident()):
                # A thread other than the main one may be a handler's, which closing itself waits for.
                main = _in_main_thread()
                if self._gone.acquire(timeout=-1 if main else PATIENCE):
                    self._gone.release()
                if main:
                    self._drain()
            return
        try:
            atexit.unregister(self._at_exit)
            self._lifetime.close()
            self._end_forks()
            if grace > 0:
                self._processes.wait(grace)
            try:
                self._take_down()
            finally:
                self._lifecycle("stopped")
                self.record.close()
        finally:
            self._gone.release()
        if _in_main_thread():
            self._drain()

    def _take_down(self) -> None:
        """Runs every ending, also after one that fails. Raises the first error at the end."""
        first: Exception | None = None
        while self._endings:
            try:
                self._endings.pop()()
            except Exception as problem:  # noqa: BLE001 - raised below
                first = first or problem
        if self._registration is not None:
            self._registration.end() if self._ready else self._registration.discard()
        if first is not None:
            raise first

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._ready and not sys.is_finalizing():
            self.close()

    def __repr__(self) -> str:
        return f"<Sandbox {self.id} {self.engine}{' closed' if self._closed else ''}>"


def with_launcher(launcher: Started | None, config: Given, **more: Any) -> Sandbox:
    """`Sandbox(config, **more)` with a launcher that already runs, if any. On failure the launcher is ended."""
    made = Sandbox.__new__(Sandbox)
    made._launched = launcher
    try:
        made.__init__(config, **more)  # type: ignore[misc]
    except BaseException:
        if launcher is not None:
            launcher.abandon()
        raise
    return made


def close_forgotten(sandbox: ref[Sandbox]) -> None:
    """Closes a sandbox at the end of the program."""
    if (living := sandbox()) is not None:
        living.close()


def end_in_time(sandbox: ref[Sandbox], reason: str) -> None:
    """Ends a sandbox whose lifetime is over, that nobody uses, or whose files cannot be hidden any more."""
    if (living := sandbox()) is not None:
        living.end_reason = reason
        try:
            living.record.write("sandbox_lifecycle", f"ending: {reason}")
        finally:  # also on a full disk
            living.close()


def _in_main_thread() -> bool:
    """Whether the process may end as soon as this thread goes on, so that clients must get their last answer first."""
    threading = sys.modules.get("threading")  # if it is not loaded, there is no other thread
    return threading is None or threading.current_thread() is threading.main_thread()


def _nothing() -> None:
    """Nobody has connected yet."""


def asking(made: list[Asking], *parts: Any) -> Asking:
    """A sandbox's questions to its owner; imported when the first one is asked or awaited."""
    if not made:
        from sandbox.asks.lazy_asks import Asking

        made.append(Asking(*parts))
    return made[0]


def open_record(config: Config, identity: str) -> Record:
    """The record this sandbox writes to. Raises SandboxError: without a record nothing runs."""
    return Record(record_directory(config), sandbox=identity, rotate_size=config.audit.rotate_size)
