"""Building one sandbox: the part of `Sandbox` that decides what is built and starts what serves it.

Each part, once it exists, adds to `_endings` what closes it. Functions import the modules they need themselves: the
launcher works meanwhile.
"""

from __future__ import annotations

import os
import sys
from _functools import partial  # `functools` and `threading` are loaded later: see `wiring.py`

from sandbox.config.home import home
from sandbox.config.model import Config
from sandbox.engines.choose import default_pids
from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    from sandbox.asks.lazy_asks import Asking
    from sandbox.asks.pending import Asks
    from sandbox.audit.record import Record
    from sandbox.branches.branch_lock import InUse
    from sandbox.branches.target import Target
    from sandbox.checkpoints.origin import Origin
    from sandbox.config.given import Given
    from sandbox.config.model import Network
    from sandbox.engines.base import Capabilities, Running
    from sandbox.events import Events
    from sandbox.guards.host_guard import HostGuard
    from sandbox.info import Port
    from sandbox.layout.layout import Layout
    from sandbox.layout.project_state import ProjectState
    from sandbox.network.credentials.credential_files import Furnishing
    from sandbox.network.credentials.logins import Logins
    from sandbox.network.gate_thread import GateThread
    from sandbox.plan.plan import Plan
    from sandbox.registry.registration import Registration
    from sandbox.vfs.mounts import Mounts
    from sandbox.vfs.provider import Provider

SYSTEM_PATHS = (f"{sys.base_prefix}/lib/", f"{sys.base_prefix}/lib64/")


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
    _origin: Origin | None
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
        self.notices += [*self._layout.notices, *([self._running.unheld] if self._running.unheld is not None else [])]
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
            self._guard.watch(self.notices.append)
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
        from sandbox.state.places import project_word

        project = project_word(os.path.realpath(self.config.filesystem.root))
        return Logins(self.config.credentials, self._guard.cover_new, project)

    def _credential_files(self) -> Furnishing | None:
        if self._logins is None:
            return None
        from sandbox.network.credentials.credential_files import Furnishing

        return Furnishing(self._logins, self._plan, self._layout.views.inside)


class Building(Serving):
    """What is decided before the walls are built. Only `Sandbox` derives from it."""

    def _arrange(self, directory: str | None) -> None:
        """Decides what is built, and makes what must exist before. `directory` is the tenants' own, if any."""
        from sandbox.layout.paths import writable_trees

        filesystem, can = self.config.filesystem, self._can
        self._freeze_what_is_acted_on()
        self._endings.append(self._guard.finish)
        trees = writable_trees(filesystem)
        self._guard.note_written(trees)  # before a program of the host is looked for
        self._freeze_own_program(trees)
        self._look_at_path(trees)
        self._freeze_what_signs()
        self._logins = self._known_logins()
        if filesystem.branch is not None:
            from sandbox.optional_parts import find_branch

            find_branch(self, filesystem.branch)
        reserved = self._reserve()
        self._mounts = None
        if has_mounts(self.config):
            from sandbox.optional_parts import own_directories

            self._mounts = own_directories(self)
        if can.own_root:
            self._layout = self._walled(reserved)
        else:
            from sandbox.layout.layout import on_host

            self._layout = on_host(self.config, self.id, os.environ, directory)
        self._plan = self._layout.plan
        self._plan.pids = default_pids(self.config)
        if self._origin is not None:
            self._origin.furnish(self._plan)
            self._register().note("origin.json", {"family": self._origin.family})
        self._plan.proxy_token = os.urandom(16).hex() if can.gate == "proxy" else None
        self._furnish()
        self._gate_thread = self._gate()
        self._credentials = self._credential_files()
        self._cover()

    def _reserve(self) -> list[str]:
        """Makes the directories in the project that tenants must not make. Returns their names."""
        from sandbox.layout.paths import project_root

        filesystem = self.config.filesystem
        if self._can.own_root and not (filesystem.read_only or filesystem.overlay or filesystem.show_host):
            return self._guard.reserve(project_root(filesystem), self._layered())
        if filesystem.overlay and self._layered():
            return self._guard.reserve(project_root(filesystem), self._layered(), only_places=True)
        return []

    def _furnish(self) -> None:
        """Adds to the plan the directories that are more than the host's files."""
        if self._mounts is not None:
            from sandbox.optional_parts import layer_of_changes, outside_repository

            self._register()  # the layer is kept in the registry entry
            layer = layer_of_changes(self)
            self._mounts.furnish(self._plan, layer, outside_repository(self, layer))
            self._register().note("mounts.json", self._mounts.ways)
        if self._layout.caches and self._can.overlay:
            from sandbox.layout.caches import KeptCaches

            kept = KeptCaches(home(), self._plan.directory, lambda: self._register().path)
            self._endings.append(kept.close)
            kept.furnish(self._plan, self._layout.caches)
        if self._layered():
            from sandbox.optional_parts import keep_project_state

            keep_project_state(self)

    def _cover(self) -> None:
        """Replaces and covers files of the plan, once all of them are known."""
        from sandbox.guards.tripwire import arm, require_tripwires

        filesystem = self.config.filesystem
        if filesystem.replaced:
            from sandbox.layout.replaced import replace

            replace(self._plan, filesystem, self._layout.views.inside)
        if self.config.network.publish:
            self._register().note("ports.json", {"ports": [dict(port) for port in self.ports]})
        if filesystem.ask:
            require_tripwires()
        if self._can.tripwires:
            arm(self._plan, self._credentials.paths if self._credentials is not None else ())

    def _walled(self, reserved: Sequence[str]) -> Layout:
        """The layout where tenants have a root of their own. `reserved`: names that were made in the project."""
        from sandbox.layout.etc import hold, ignore
        from sandbox.layout.layout import layout
        from sandbox.layout.paths import project_root, writable_trees

        filesystem = self.config.filesystem
        shown, hiding = (self._mounts.shown, self._mounts.hiding) if self._mounts is not None else ((), ())
        trees = writable_trees(filesystem, shown) if shown or filesystem.show_host else []
        if shown:
            self._guard.note_written(trees)
            self._freeze_own_program(trees)
        held: list[str] = []
        if filesystem.show_host:
            held = self._guard.reserve_all(filesystem, project_root(filesystem), trees)
        trees = writable_trees(filesystem, shown, searched=True)
        repositories = self._guard.trust(trees) if trees else None
        kept: Sequence[tuple[str, str]] = ()
        if self.config.state.keep:
            from sandbox.optional_parts import kept_in_home

            kept = kept_in_home(self)
        system = None
        if self.config.image is not None:
            from sandbox.optional_parts import image_system

            system = image_system(self)
        made = layout(self.config, self.id, dict(os.environ), repositories, shown, hiding, system, kept=kept)
        ignore(made.plan, list(dict.fromkeys((*reserved, *self._layered()))))
        if filesystem.show_host:
            hold(made.plan, held)
        return made

    def _freeze_what_is_acted_on(self) -> None:
        """Makes the project read-only where programs on the host act on its files, as they do in `~/.claude`."""
        from sandbox.layout.paths import frozen_project

        place = frozen_project(self.config.filesystem)
        if place is None:
            return
        self.config.filesystem.read_only = True
        self.notices.append(
            Message(
                "programs on this machine act on what is in {place!r}, so the project is read-only; to let the sandbox "
                "change it, use `--overlay` and review the changes, or name it in `filesystem.allow_write`",
                place=place,
            )
        )

    def _freeze_what_signs(self) -> None:
        """Keeps tenants from changing what the host's signer runs and trusts, whether or not this sandbox signs."""
        from sandbox.guards.scan import signs

        if signs(self.config):
            from sandbox.guards.signing_files import frozen

            filesystem = self.config.filesystem
            filesystem.deny_write = [*filesystem.deny_write, *frozen(self.config)]

    def _look_at_path(self, trees: Sequence[str]) -> None:
        """Guards programs that the person starts by name: frozen in the home directory, reported elsewhere."""
        tops = tuple(f"{tree.rstrip('/')}/" for tree in trees)
        mine = (os.path.realpath(one or ".") for one in os.get_exec_path() if not one.startswith("/usr/"))
        if not any(f"{one}/".startswith(tops) for one in mine):
            return
        from sandbox.guards.path_programs import on_path

        places, filesystem = on_path(trees), self.config.filesystem
        user = os.path.realpath(os.path.expanduser("~"))
        if user in trees:
            # Those in hidden directories (`~/.local/bin`) are read-only anyway.
            plain = [one for one in places if one != user and not one[len(user) + 1 :].startswith(".")]
            filesystem.deny_write = [*filesystem.deny_write, *plain]
        self._guard.note_programs(places)

    def _freeze_own_program(self, trees: Sequence[str]) -> None:
        """Keeps tenants from changing our own code, wherever it is installed. Quick, because every start does it."""
        tops = tuple(f"{tree.rstrip('/')}/" for tree in trees)
        ours = (*sys.path, sys.prefix, sys.base_prefix)  # the last for all that is below it
        paths = [os.path.realpath(one or ".") for one in ours if not f"{one}/".startswith(SYSTEM_PATHS)]
        if not tops or not any(f"{path}/".startswith(tops) for path in (*paths, os.path.realpath(__file__))):
            return
        from sandbox.guards.own_imports import import_nothing_from, written

        import_nothing_from(trees)
        filesystem = self.config.filesystem
        named = [os.path.realpath(os.path.expanduser(one)) for one in filesystem.allow_write]
        for place in written(trees):
            if place in named or place in filesystem.deny_write:
                continue
            filesystem.deny_write = [*filesystem.deny_write, place]
            self.notices.append(
                Message(
                    "sandbox itself is in {place!r}, so that is read-only inside: what changed it would run on this "
                    "machine; to let the sandbox change it, use `--overlay`, or install sandbox elsewhere (pipx)",
                    place=place,
                )
            )


def nobody_there(address: str, port: int) -> socket.socket:
    """How the gate reaches inside before the walls are built: not at all."""
    raise ConnectionRefusedError(f"{address}:{port}: the sandbox is not ready")


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


def has_mounts(config: Config) -> bool:
    """Whether there are directories that are more than the host's files; most sandboxes have none."""
    vfs = config.vfs
    return bool(vfs.mounts or vfs.direct_mounts or config.filesystem.overlay)


def with_placeholders(asked: Mapping[str, str], held: Mapping[str, str]) -> dict[str, str]:
    """The variables that name a secret (`${NAME}`), with the placeholder in its place."""
    found: dict[str, str] = {}
    for variable, value in asked.items():
        for name, placeholder in held.items():
            value = value.replace(f"${{{name}}}", placeholder)
        if value != asked[variable]:
            found[variable] = value
    return found


def take_providers(config: Given) -> tuple[Given, dict[str, Provider]]:
    """Separates the provider objects in a caller's `vfs.mounts` from the plain configuration."""
    if config is None or isinstance(config, Config) or not (config.get("vfs") or {}).get("mounts"):
        return config, {}
    from sandbox.vfs.arrange import take_providers

    return take_providers(config)
