"""What serves one running sandbox: its gate, the mounts of its providers, its tripwires, its registry entry.

Functions import the modules they need themselves: the launcher works meanwhile.
"""

from __future__ import annotations

import os
from _functools import partial  # `functools` and `threading` are loaded later: see `wiring.py`
from _weakref import ref

from sandbox.config.home import home

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from sandbox.asks.lazy_asks import Asking
    from sandbox.asks.pending import Asks
    from sandbox.audit.record import Record
    from sandbox.branches.branch_lock import InUse
    from sandbox.branches.target import Target
    from sandbox.checkpoints.origin import CheckpointOrigin
    from sandbox.config.model import Config, Network
    from sandbox.engines.base import Capabilities, Running
    from sandbox.events import Events
    from sandbox.guards.host_guard import HostGuard
    from sandbox.info import Port
    from sandbox.layout.layout import Layout
    from sandbox.layout.project_state import ProjectState
    from sandbox.lifetime import Lifetime
    from sandbox.network.credentials.credential_files import Furnishing
    from sandbox.network.credentials.logins import Logins
    from sandbox.network.gate_thread import GateThread
    from sandbox.plan.plan import Plan
    from sandbox.registry.registration import Registration
    from sandbox.tenants import Tenants
    from sandbox.vfs.mounts import Mounts
    from sandbox.vfs.provider import Provider


class Serving:
    """What serves a running sandbox and looks after it. `Sandbox` sets the attributes that are declared first."""

    config: Config
    id: str
    record: Record
    notices: list[str]
    _kept_layer: str | None
    _providers: dict[str, Provider]
    _hooks: object | None
    _command: Sequence[str] | None
    _resolve: Callable[[str, int], Sequence[str]] | None
    _events: Events
    _endings: list[Callable[[], object]]
    _registration: Registration | None
    _questions: list[Asking]
    _asking: Callable[[], Asking]
    _guard: HostGuard
    _lifetime: Lifetime
    _origin: CheckpointOrigin | None
    _forked_from: GateThread | None
    _branch: Target | None
    _branch_in_use: InUse | None

    # Made here:
    engine: str
    _can: Capabilities
    _running: Running
    _plan: Plan
    _layout: Layout
    _mounts: Mounts | None
    _logins: Logins | None
    _credentials: Furnishing | None
    _gate_thread: GateThread
    _project_state: ProjectState | None = None

    if TYPE_CHECKING:  # of `Sandbox`

        @property
        def ports(self) -> list[Port]: ...

    def _register(self) -> Registration:
        """The sandbox's entry in the registry, made when it is first needed."""
        if self._registration is None:
            from sandbox.policy.environment import EnvFilter
            from sandbox.registry.registration import Registration

            secrets = self.config.network.secrets.values()
            held = [one.value or os.environ.get(one.from_env or "", "") for one in secrets]
            more = [value for value in (*held, *(self._logins.values() if self._logins is not None else ())) if value]
            shown = EnvFilter(self.config.environment).redacted(self._command, os.environ, more)
            self._registration = Registration(home(), self.id, self.config.plain(), shown)
        return self._registration

    def _tell_notices(self) -> None:
        """Adds notices about what is hidden and which limits cannot be enforced here, and records all notices."""
        self.notices += [*self._guard.notices, *self._layout.notices]
        self.notices += [*([self._running.unheld] if self._running.unheld is not None else [])]
        self.notices += self._logins.notices if self._logins is not None else []
        if self._project_state is not None:
            self.notices += self._project_state.notices(self._running.pid)
        elif self.config.state.project and not self._can.overlay:
            from sandbox.layout.project_state import impossible

            self.notices.append(impossible(self.config.state.project))
        for notice in self.notices:
            self.record.write("policy_decision", notice, severity="warn")

    def _serve(self) -> None:
        """Starts everything that serves the running sandbox and looks after it."""
        running, plan = self._running, self._plan
        if self.config.filesystem.ask:
            from sandbox.guards.tripwire import require_armed

            require_armed(plan, running.tripwires)
        if running.tripwires:
            from sandbox.audit import file_entries
            from sandbox.engines.base import Reporting
            from sandbox.guards.tripwire_reports import Reports

            tops = {plan.directory: ".", plan.environment.get("HOME", ""): "~"}
            touches = file_entries.Touches(self.record, self._events, plan.rules(), tops)
            asks = None
            if self.config.filesystem.ask and running.pid is not None:
                from sandbox.optional_parts import file_asks

                asks = file_asks(self, running.pid)
            assert isinstance(running, Reporting)  # as the engine declares
            self._endings.append(Reports(running, touches, asks).close)
        self._gate_thread.sockets, self._gate_thread.dial = running.take_sockets(), running.dial
        self._gate_thread.pid = running.pid if self._can.namespace else None
        self._gate_thread.start()
        if self._mounts is not None:
            self._mounts.serve(running.take_devices())
        if self.config.vfs.file_events:
            from sandbox.optional_parts import report_changes

            report_changes(self)
        if self._can.namespace:
            self._guard.watch(self.notices.append, partial(tenants_of, ref(self), self._lifetime.end))
            self._endings.append(self._guard.stop_watching)

    def _layered(self) -> list[str]:
        """The directories of the project whose changes go to a layer of the kept state: docs/agents.md."""
        names, filesystem = self.config.state.project, self.config.filesystem
        if not names or not self._can.overlay or filesystem.show_host:
            return []
        from sandbox.layout.paths import project_root

        is_home = project_root(filesystem) == os.path.realpath(os.path.expanduser("~"))  # its dot entries are hidden
        return [] if is_home else names

    def _refuse_servers(self, network: Network) -> None:
        """Raises ConfigError when tenants could reach a port of our own server on the host."""
        if network.localhost_ports:
            from sandbox.registry.servers import refuse_servers

            refuse_servers(home(), network.localhost_ports)

    def _gate(self) -> GateThread:
        """The thread that will answer every connection. Puts the secrets' placeholders where tenants look for them."""
        from sandbox.network.gate_thread import GateThread

        network = self.config.network
        self._refuse_servers(network)
        held: dict[str, str] = {}
        if network.secrets:
            from sandbox.network.secrets.placeholders import placeholders

            held = placeholders(network.secrets)
        if held or self._logins is not None:
            given = self._logins.environment if self._logins is not None else {}
            self._plan.environment.update(given)
            self._plan.environment.update(with_placeholders(self.config.environment.set, {**given, **held}))
        client = getattr(self._hooks, "client_gate", None)  # set for a client that has a gate of its own
        made = GateThread if client is None else client.gate
        watch: GateThread = made(
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
            signing=self.config.signing if self.config.signing.enabled else None,
        )
        if self.config.signing.enabled:
            self._plan.environment.setdefault("ETH_RPC_URL", "http://signer.sandbox.internal")
        self._endings.append(watch.close)
        if self._forked_from is not None:
            watch.inherit(self._forked_from)
        watch.furnish(self._plan)
        return watch

    def _known_logins(self) -> Logins | None:
        """The credential files and logins that tenants have placeholders for. Without a gate, None."""
        if not self.config.credentials or self._can.gate == "none":
            return None
        from sandbox.network.credentials.logins import Logins
        from sandbox.state.paths import project_word

        project = project_word(os.path.realpath(self.config.filesystem.root))
        return Logins(self.config.credentials, self._guard.cover_new, project)

    def _credential_files(self) -> Furnishing | None:
        if self._logins is None:
            return None
        from sandbox.network.credentials.credential_files import Furnishing

        return Furnishing(self._logins, self._plan, self._layout.views.inside)


def nobody_there(address: str, port: int) -> socket.socket:
    """How the gate reaches inside before the walls are built: not at all."""
    raise ConnectionRefusedError(f"{address}:{port}: the sandbox is not ready")


def tenants_of(sandbox: ref[Any], end: Callable[[str], object]) -> Tenants:
    """A sandbox's tenants, without what refers to the sandbox."""
    from sandbox.tenants import Tenants

    return Tenants(sandbox, end)


def asks_of(made: Callable[[], Asking]) -> Asks:
    """A sandbox's questions, without what refers to the sandbox."""
    return made().asks()


def settle(made: list[Asking]) -> None:
    """Lets those who answered learn that it was carried out, before their connection ends."""
    for one in made:
        one.settle()


def withdraw(made: list[Asking]) -> None:
    """Withdraws all open questions."""
    for one in made:
        one.close()


def with_placeholders(asked: Mapping[str, str], held: Mapping[str, str]) -> dict[str, str]:
    """The variables that name a secret (`${NAME}`), with the placeholder in its place."""
    found: dict[str, str] = {}
    for variable, value in asked.items():
        for name, placeholder in held.items():
            value = value.replace(f"${{{name}}}", placeholder)
        if value != asked[variable]:
            found[variable] = value
    return found
