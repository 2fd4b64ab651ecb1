"""A managed sandbox: started, watched, restarted when it fails, and stopped reliably."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.audit.entry import timestamp
from sandbox.errors import Denied, SandboxClosed, SandboxError
from sandbox.manager import health, states
from sandbox.manager.ending import end
from sandbox.manager.restore import restore
from sandbox.manager.settings import ManagerSettings
from sandbox.manager.states import WrongState

if TYPE_CHECKING:
    from sandbox.config.model import Config
    from sandbox.result import ExecResult
    from sandbox.sandbox import Sandbox

EVENTS = 100  # how many are kept
STARTING = ("start", "recover", "started")  # these steps are not made unless they are recorded


class Happened(msgspec.Struct, omit_defaults=True):
    """One step in a managed sandbox's life."""

    timestamp: str
    type: str
    detail: str
    metadata: dict[str, str | int | float | bool | None] = {}


class SandboxManager:
    """Keeps one sandbox running. Thread-safe: of two contradictory calls, one is refused.

    `config` is a SandboxManagerConfig (docs/manager.md) or a `Config`; `settings` say how often the sandbox is checked,
    and when to give up.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | Config | None = None,
        *,
        name: str = "default",
        settings: ManagerSettings | None = None,
        create: Callable[[Config], Sandbox] | None = None,
    ) -> None:
        """Starts nothing. `create` makes the sandbox; by default `Sandbox`. Raises ConfigError."""
        from sandbox.manager.config import read, without_effect

        self.name = name
        self.settings = settings or ManagerSettings()
        self.config = read(config if config is not None else {})
        self._create = create or _create
        self._state = states.UNINITIALIZED
        self._changed = Condition()
        self._sandbox: Sandbox | None = None
        self._previous: str | None = None  # the id of the last sandbox, whose changes a recovery carries over
        self._first: str | None = None  # the id of the first sandbox that was started; `Entry.family`
        self._health: health.Health | None = None
        self._failures = self._attempts = 0
        self._events: deque[Happened] = deque(maxlen=EVENTS)
        self._listeners: tuple[Callable[[Happened], object], ...] = ()
        self._watcher: Thread | None = None
        self._wake = Event()
        for note in without_effect(config or {}):
            self._tell("config", note)

    # -- looking

    @property
    def state(self) -> str:
        """One of the seven states of docs/manager.md."""
        return self._state

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox itself; None while there is none."""
        return self._sandbox

    def status(self) -> dict[str, Any]:
        """State, mode, engine, the sandbox's id, and the last health check."""
        with self._changed:
            sandbox, seen = self._sandbox, self._health
            browser = sandbox._started_browser if sandbox is not None else None
            return {
                "state": self._state,
                "mode": self.config.mode,
                "containerId": sandbox.id if sandbox is not None else None,
                "browserContainerId": browser.runs_in if browser is not None else None,
                "engine": sandbox.engine if sandbox is not None else self.config.engine,
                "health": health.shown(seen, self._failures),
            }

    def events(self) -> list[Happened]:
        """The last 100 steps, oldest first."""
        with self._changed:
            return list(self._events)

    def on_event(self, listener: Callable[[Happened], object]) -> Callable[[], None]:
        """Calls `listener` with every step from now on, in the thread where it happens. Returns a function that
        unsubscribes it."""
        with self._changed:
            self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            with self._changed:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

        return unsubscribe

    # -- doing

    def start(self) -> None:
        """Starts the sandbox; returns when it is ready. Raises WrongState, and what `Sandbox` raises."""
        with self._changed:
            self._move("start", "starting")
        self._build()

    def recover(self) -> None:
        """Ends what is left of a degraded or stopped sandbox, and starts it again with its workspace.

        Raises WrongState, and what `Sandbox` raises; in the latter case it is degraded afterwards.
        """
        with self._changed:
            self._move("recover", "recovering")
        self._build()

    def stop(self) -> None:
        """Ends the sandbox; returns when it has ended. Does nothing when it is stopped. Never hangs."""
        with self._changed:
            if self._state == states.STOPPED:
                return
            waiting = self._state == states.STOPPING
            if not waiting:
                before = self._turn("stop", "stopping")
            sandbox, self._sandbox = self._sandbox, None
        if waiting:
            with self._changed:
                self._changed.wait_for(lambda: self._state != states.STOPPING, self.settings.longest_end)
            return
        self._wake.set()
        forced = end(sandbox, self.settings.end_patience) if sandbox is not None else False
        with self._changed:
            self._previous = sandbox.id if sandbox is not None else self._previous
            self._note("stop", before, "stopping", sandbox)  # only now: nothing comes before ending it
            self._move("stopped", "stopped by force" if forced else "stopped")

    def change_mode(self, mode: str) -> None:
        """Changes the mode and records that; restarts a running sandbox. Raises ConfigError and what `start` raises."""
        from sandbox.manager.config import with_mode

        with self._changed:
            config, before = with_mode(self.config, mode), self.config.mode
            if self._state in (states.INITIALIZING, states.RECOVERING):
                raise WrongState("change the mode", self._state)
            change = {"from": before, "to": mode}
            _record(self, self._sandbox, "sandbox_mode_transition", f"{before} -> {mode}", change, severity="warn")
            self.config = config
            running = self._state in (states.READY, states.DEGRADED)
        self._tell("mode", f"{before} -> {mode}", change)
        if running and before != mode:
            self.stop()
            self.start()

    def exec(self, command: str, *, workdir: str | None = None, timeout: float = 30.0) -> ExecResult:
        """Runs a command for the shell to its end. Raises WrongState unless the sandbox is ready or degraded."""
        return self._exec_in(self._usable("exec"), command, workdir=workdir, timeout=timeout)

    def _usable(self, step: str) -> Sandbox:
        """The sandbox, ready or degraded. Raises WrongState, which says that `step` cannot be done."""
        with self._changed:
            if self._state not in states.USABLE or self._sandbox is None:
                raise WrongState(step, self._state)
            return self._sandbox

    def _exec_in(self, sandbox: Sandbox, command: str, *, workdir: str | None, timeout: float) -> ExecResult:
        """Runs a command in a sandbox that `_usable` returned. Raises SandboxClosed when it has ended since."""
        try:
            return sandbox.exec(command, cwd=workdir, timeout=timeout)
        except SandboxClosed:
            self._wake.set()  # the watcher checks now, not after the interval
            raise

    @property
    def walled(self) -> bool:
        """Whether commands run behind walls, which they do not in mode `off`."""
        from sandbox.config.modes import without_walls

        return not without_walls(self.config)

    # -- building, in the caller's thread or the watcher's

    def _build(self) -> None:
        """Goes from `initializing` or `recovering` to ready, or back on failure. A stop in between wins."""
        from sandbox.manager.config import in_force

        old = self._take_old()
        try:
            os.makedirs(self.config.filesystem.root, exist_ok=True)  # somebody may have removed the workspace
            sandbox = self._create(in_force(self.config))
        except BaseException as problem:
            self._failed(problem)
            raise
        try:
            self._remember(sandbox)
            if old is not None:
                self._restore(old, sandbox)
            kept = self._ready(sandbox)
        except BaseException as problem:
            end(sandbox, self.settings.end_patience)
            self._failed(problem)
            raise
        if not kept:
            end(sandbox, self.settings.end_patience)
            raise WrongState("start", self._state)

    def _take_old(self) -> str | None:
        with self._changed:
            sandbox, self._sandbox = self._sandbox, None
            old = sandbox.id if sandbox is not None else self._previous
        if sandbox is not None:
            end(sandbox, self.settings.end_patience)
        return old if self._state == states.RECOVERING else None

    def _remember(self, sandbox: Sandbox) -> None:
        """Makes all sandboxes of this manager share one set of counts (the limits of signing), so that a tenant cannot
        reset them by crashing its sandbox."""
        if self._first is None:
            self._first = sandbox.id
        else:
            sandbox._register().note("origin.json", {"family": self._first})

    def _restore(self, old: str, sandbox: Sandbox) -> None:
        made, failed = restore(old, sandbox)
        if made or failed:
            detail = f"{made} changes of {old} were made again" + (f", {len(failed)} could not be" if failed else "")
            self._tell("restored", detail, {"from": old, "changes": made, "failed": len(failed)})

    def _ready(self, sandbox: Sandbox) -> bool:
        with self._changed:
            if self._state not in (states.INITIALIZING, states.RECOVERING):
                return False  # it was stopped meanwhile
            metadata = {"id": sandbox.id, "engine": sandbox.engine}
            self._move("started", f"{sandbox.id} is ready", metadata, sandbox)
            self._sandbox = sandbox
            self._previous = sandbox.id
            self._failures = self._attempts = 0
            self._health = None
            if self._watcher is None or not self._watcher.is_alive():
                self._watcher = Thread(target=self._watch, name=f"sandbox-manager-{self.name}", daemon=True)
                self._watcher.start()
        return True

    def _failed(self, problem: BaseException) -> None:
        with self._changed:
            if self._state in (states.INITIALIZING, states.RECOVERING):
                self._move("failed", f"{type(problem).__name__}: {problem}")

    # -- watching

    def _watch(self) -> None:
        """Checks the sandbox until it is stopped. Recovers it while it is degraded, after longer and longer pauses."""
        pause = self.settings.interval
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            with self._changed:
                state, sandbox = self._state, self._sandbox
                if state in (states.STOPPED, states.STOPPING, states.UNINITIALIZED):
                    self._watcher = None
                    return
            if state in states.USABLE and sandbox is not None:
                self._look(sandbox)
            pause = self.settings.interval
            if self._state == states.DEGRADED and self.settings.auto_recover:
                pause = self._try_recovery()

    def _look(self, sandbox: Sandbox) -> None:
        seen = health.check(sandbox, self.settings.patience)
        with self._changed:
            if self._sandbox is not sandbox or self._state not in states.USABLE:
                return
            self._health = seen
            self._failures = 0 if seen.healthy else self._failures + 1
            wrong = "; ".join(f"{name}: {what}" for name, what in seen.checks.items() if what)
            if seen.healthy and self._state == states.DEGRADED:
                self._attempts = 0
                self._move("healthy", "healthy again")
            elif self._state == states.READY and self._failures >= self.settings.failures:
                self._move("unhealthy", wrong, {"failures": self._failures})
            elif not seen.healthy:
                self._tell("health", wrong, {"failures": self._failures})

    def _try_recovery(self) -> float:
        """Makes one attempt, when it is due. Returns how long to wait before the next check."""
        pause = self.settings.backoff(self._attempts)
        if self._attempts >= self.settings.attempts:
            return self.settings.interval  # given up: a person has to look
        if self._attempts and self._wake.wait(pause):
            self._wake.clear()
            return 0.0  # it was stopped, or a command found the sandbox closed: check first
        self._attempts += 1
        attempts = self._attempts
        try:
            self.recover()
        except Denied as refused:  # the kill switch: trying again is useless until somebody starts it
            self._tell("recovery", str(refused), {"attempt": attempts})
            self._attempts = self.settings.attempts
        except (SandboxError, OSError) as problem:
            self._attempts = attempts
            self._tell("recovery", f"attempt {attempts} failed: {problem}", {"attempt": attempts})
        return self.settings.interval

    # -- telling

    def _move(
        self, step: str, detail: str, more: Mapping[str, str | int] | None = None, sandbox: Sandbox | None = None
    ) -> None:
        """Records a change of state and makes it; the caller holds the lock. Raises what `_note` raises."""
        self._note(step, self._state, detail, sandbox or self._sandbox)
        self._turn(step, detail, more)

    def _turn(self, step: str, detail: str, metadata: Mapping[str, str | int] | None = None) -> str:
        before, self._state = self._state, states.after(self._state, step)
        self._changed.notify_all()
        change: dict[str, str | int] = {"from": before, "to": self._state, **(metadata or {})}
        self._tell("state", f"{before} -> {self._state}: {detail}", change)
        return before

    def _note(self, step: str, before: str, detail: str, sandbox: Sandbox | None) -> None:
        """Writes a change of state to the record. Raises WrongState, and for STARTING steps what writing raises."""
        after = states.after(before, step)
        try:
            _record_step(self, step, before, after, detail, sandbox)
        except (SandboxError, OSError) as problem:
            if step in STARTING:
                raise
            self._tell("record", f"{before} -> {after} could not be recorded: {problem}")

    def _tell(self, type: str, detail: str, metadata: Mapping[str, str | int] | None = None) -> None:
        happened = Happened(timestamp(time.time()), type, detail, dict(metadata or {}))
        self._events.append(happened)
        for listener in self._listeners:
            try:
                listener(happened)
            except Exception as problem:  # noqa: BLE001 - a listener must not stop the manager
                import sys

                print(f"sandbox: a manager's listener raised {problem!r}", file=sys.stderr)

    def __enter__(self) -> SandboxManager:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _record_step(
    manager: SandboxManager, step: str, before: str, after: str, detail: str, sandbox: Sandbox | None
) -> None:
    severity = "warn" if after == states.DEGRADED or step == "failed" else "info"
    summary = f"manager {manager.name}: {before} -> {after}: {detail}"
    metadata = {"manager": manager.name, "from": before, "to": after}
    _record(manager, sandbox, "sandbox_lifecycle", summary, metadata, severity=severity)


def _record(
    manager: SandboxManager,
    sandbox: Sandbox | None,
    type: str,
    summary: str,
    metadata: Mapping[str, str],
    *,
    severity: str,
) -> None:
    from sandbox.audit.record import Record
    from sandbox.config.home import record_directory

    record = Record(record_directory(manager.config), sandbox=sandbox.id if sandbox is not None else "")
    try:
        record.write(type, summary, severity=severity, metadata=metadata)
    finally:
        record.close()


def _create(config: Config) -> Sandbox:
    from sandbox.sandbox import Sandbox

    return Sandbox(config)
