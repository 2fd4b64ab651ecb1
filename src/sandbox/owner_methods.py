"""What the owner of a running sandbox can see and change, besides commands and files."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from _thread import LockType
    from collections.abc import Callable, Mapping
    from typing import Any

    from sandbox.asks.lazy_asks import Asking
    from sandbox.audit.record import Record
    from sandbox.config.model import Config, Network
    from sandbox.desktop.browser import Browser
    from sandbox.desktop.desktop import Desktop
    from sandbox.desktop.methods import BrowserEndpoints
    from sandbox.engines.base import Running
    from sandbox.events import Events, Handler
    from sandbox.guards.host_guard import HostGuard
    from sandbox.info import Ask, Port, Stats
    from sandbox.lifetime import Lifetime
    from sandbox.network.gate_thread import GateThread
    from sandbox.plan.plan import Plan
    from sandbox.registry.registration import Registration
    from sandbox.sandbox import Sandbox


class OwnerMethods:
    """Part of `Sandbox`, which sets the attributes declared here."""

    config: Config
    record: Record
    _plan: Plan
    _running: Running
    _events: Events
    _endings: list[Callable[[], object]]
    _lock: LockType
    _changing_network: LockType
    _gate_thread: GateThread
    _guard: HostGuard
    _registration: Registration | None
    _asking: Callable[[], Asking]
    _companions: dict[object, Any]
    _lifetime: Lifetime

    if TYPE_CHECKING:  # of `Sandbox`

        def _used(self) -> None: ...

        def _alive(self) -> None: ...

        def _not_closed(self) -> None: ...

        def _refuse_servers(self, network: Network) -> None: ...

    # -- the network

    def update_network(self, changes: Mapping[str, Any]) -> None:
        """Changes the network's configuration; new connections see it at once. Raises ConfigError, changing nothing."""
        self._change_network(lambda now: changes)

    def _change_network(self, change: Callable[[Network], Mapping[str, Any]]) -> None:
        """Applies the changes that `change` makes from the present configuration; no other change comes in between."""
        with self._changing_network:
            changes = change(self.config.network)
            network = self.config.network.changed(changes)
            self._refuse_servers(network)
            self._gate_thread.update(network)
            self.config.network = network
            self._guard.hide_secrets(self.config)
        self.record.write("policy_decision", "network configuration changed", metadata={"keys": ", ".join(changes)})

    def dial(self, port: int, address: str = "127.0.0.1") -> socket.socket:
        """Connects to a TCP port that a program inside listens on. Raises OSError when none does, SandboxClosed."""
        self._used()
        return self._running.dial(address, port)

    def _dial_path(self, path: str) -> socket.socket:
        """Connects to a Unix socket inside, with a tenant's rights. Raises OSError, SandboxClosed."""
        self._used()
        return self._running.dial(path, 0)

    @property
    def desktop(self) -> Desktop:
        """A screen, keyboard, mouse and sound of the sandbox's own: docs/desktop.md. Raises SandboxClosed."""
        from sandbox.desktop.desktop import Desktop

        made: Desktop = self._companion(Desktop)
        return made

    def browser(self) -> BrowserEndpoints:
        """Starts a browser inside, unless it runs, and returns where Playwright and Selenium find it: docs/desktop.md.

        Raises SandboxError when it cannot be started, Denied, SandboxClosed.
        """
        return self._browser.endpoints()

    @property
    def _browser(self) -> Browser:
        from sandbox.desktop.browser import Browser

        made: Browser = self._companion(Browser)
        return made

    @property
    def _started_browser(self) -> Browser | None:
        """Its browser, if it was ever asked for. Starts nothing."""
        if not self._companions:
            return None
        from sandbox.desktop.browser import Browser

        return self._companions.get(Browser)

    def _beside(self) -> list[Sandbox]:
        """Sandboxes that belong to this one, and are paused with it."""
        browser = self._started_browser
        return [] if browser is None or browser.own is None else [browser.own]

    @property
    def ports(self) -> list[Port]:
        """The published ports (`network.publish`), with the real number where 0 was asked for."""
        from sandbox.info import Port

        published = [(rule, each) for rule, each in self._gate_thread.published if each.fileno() >= 0]
        return [Port(each.getsockname()[0], each.getsockname()[1], rule.inside) for rule, each in published]

    # -- questions to the owner

    def asks(self, watch: bool = False) -> list[Ask]:
        """Returns the questions that wait for an answer (docs/asks.md), the oldest first.

        With `watch`, the caller follows `ask` events and answers them from now on, so questions wait for its answer.
        Raises SandboxClosed.
        """
        self._not_closed()
        if watch:
            self._asking().watch()
        waiting: list[Ask] = self._asking().waiting()
        return waiting

    def answer(self, id: int, answer: str) -> None:
        """Answers a question: "once", "sandbox" (until this one ends), "always" (in the user's config too) or "deny".

        Raises NotFound when it was already answered or has expired, InvalidArgument, and SandboxError when the config
        cannot be written.
        """
        self._answer(id, answer, "the program")

    def _answer(self, id: int, answer: str, by: str) -> None:
        self._alive()
        self._asking().answer(id, answer, by)

    # -- information

    @property
    def log(self) -> str:
        """Where `sandbox logs` finds the output of a sandbox that runs detached."""
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
        """After `close`: what the host's git would have run, and where it was moved to ("" if that failed)."""
        return self._guard.undone

    @property
    def _made(self) -> list[str]:
        """After `close`: new files that programs on the host act on."""
        return self._guard.made

    def on_event(self, handler: Handler) -> Callable[[], None]:
        """Calls `handler` with every event from now on, in the thread where it happens. Returns what unsubscribes it.

        An exception in a handler is printed and otherwise ignored.
        """
        return self._events.subscribe(handler)

    def stats(self) -> Stats:
        """Returns what the sandbox uses now: memory, processor time, processes. Raises SandboxClosed."""
        from sandbox.info import Stats

        self._not_closed()
        now = self._running.usage()
        return Stats(now.memory_bytes, now.memory_peak_bytes, now.cpu_ms, now.processes, self._lifetime.left)

    def _companion(self, kind: Callable[[Any], Any]) -> Any:
        """The only `kind(self)`, made at the first call and closed when the sandbox ends. Raises SandboxClosed."""
        self._alive()
        with self._lock:
            made = self._companions.get(kind)
            if made is None:
                made = self._companions[kind] = kind(self)
                self._endings.append(made.close)
            return made
