"""Turns the configuration into a plan of what tenants see, for an engine to build.

Tenants see the project at its own path, a read-only system around it (`system.py`), an empty home, and nothing else.
"""

from __future__ import annotations

import os

from sandbox.config.caches import located
from sandbox.config.home import own_directories
from sandbox.config.paths import is_beneath
from sandbox.errors import ConfigError
from sandbox.guards.views import Views
from sandbox.layout.etc import tenant
from sandbox.layout.hiding import hide_and_freeze, hide_dot_entries, hide_proc, show_sockets
from sandbox.layout.paths import further_paths, project_root, refuse_our_own
from sandbox.layout.system import HostSystem
from sandbox.plan.mount_operations import Cover
from sandbox.plan.plan import Plan
from sandbox.policy.environment import EnvFilter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.config.caches import Cache
    from sandbox.config.model import Config, Filesystem, Network
    from sandbox.guards.repositories import Repositories
    from sandbox.guards.search import Search
    from sandbox.layout.system import System


class Layout:
    """The plan, and what `guards/` needs to know about it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.views = Views(())  # the host's trees that tenants see: the project and further paths
        self.hidden: list[str] = []  # directories in those trees that tenants do not see
        self.linked: dict[str, str] = {}  # what dot entries of the home lead to, each with the rule that blocks it
        self.search: Search | None = None  # the search of these trees
        self.notices: list[str] = []  # messages for the person at the start
        self.caches: list[tuple[Cache, str]] = []  # package caches of the person, with their paths
        self.masked = 0  # how many paths are covered; for the record


def layout(
    config: Config,
    identity: str,
    environment: Mapping[str, str],
    repositories: Repositories | None = None,
    shown: Sequence[tuple[str, str, bool]] = (),
    hiding: Sequence[str] = (),
    system: System | None = None,
    kept: Sequence[tuple[str, str]] = (),
) -> Layout:
    """The layout of one sandbox. Raises ConfigError for a root or path that cannot be used.

    `shown`: further directories of the host, where tenants will see them, and whether they can change them; the caller
    mounts them. `hiding`: inside paths at which the caller mounts something else. `system`: what is at `/`.
    `kept`: the sandbox's own directories, and where in the home tenants see them; nothing in them is the host's.
    """
    if config.filesystem.show_host:
        return _whole_host(config, identity, environment, repositories, system)
    home = os.path.realpath(os.path.expanduser("~"))
    system = system or HostSystem()
    made = _shown(config, identity, environment, home, system)
    plan = made.plan
    visible = [plan.directory, *further_paths(plan, config.filesystem), *_repository(plan, home)]
    _drop_links(plan)
    _also_at(plan, config.filesystem.also_at)
    own = own_directories(config)
    refuse_our_own([*(bind.source for bind in plan.binds), *(host for host, _, _ in shown)], own)
    hiding = _hide_home(made, home, visible, hiding)
    made.views = Views([*((one, one) for one in visible), *((host, inside) for host, inside, _ in shown)], hiding)
    taken = [*visible, *own, *(inside for _, inside, _ in shown), *(target for _, target in kept), *hiding]
    _caches(made, config, environment, home, taken)
    hide_dot_entries(made, config.filesystem, home, visible, system)
    hide_and_freeze(made, config, own, repositories)
    hide_proc(plan)
    show_sockets(plan, config.network)
    _writable(plan, system, kept)
    _keep(made, kept, home, home in visible)
    _environment(plan, home, system)
    _ports(plan, config.network)
    return made


def _shown(config: Config, identity: str, environment: Mapping[str, str], home: str, system: System) -> Layout:
    """The sandbox's own places, the system and the project."""
    made = _begun(config, identity, system.tenant(config.user))
    plan = made.plan
    plan.environment = system.environment(EnvFilter.of(config, environment), environment)
    _own(plan, home, config.filesystem)
    system.show(plan, home)
    _project(plan, config.filesystem, home, system)
    return made


def _keep(made: Layout, kept: Sequence[tuple[str, str]], home: str, is_seen: bool) -> None:
    if kept:
        from sandbox.layout.kept_home import keep

        keep(made, kept, home, is_seen)


def _drop_links(plan: Plan) -> None:
    """A project or a home in /var/tmp needs a directory there, not a link to our /tmp."""
    targets = [f"{target}/" for target in (*(bind.target for bind in plan.binds), *(one for one, _ in plan.scratch))]
    plan.links = [link for link in plan.links if not any(one.startswith(f"{link[0]}/") for one in targets)]


def _hide_home(made: Layout, home: str, visible: Sequence[str], hiding: Sequence[str]) -> Sequence[str]:
    """Gives the sandbox its own home even if the project contains the home. Returns all paths that are hidden."""
    if home in visible or not any(is_beneath(home, one) for one in visible):
        return hiding
    made.hidden = [home]
    return [*hiding, home]


def _writable(plan: Plan, system: System, kept: Sequence[tuple[str, str]]) -> None:
    places = [path for path, _ in plan.scratch] + [bind.target for bind in plan.binds if bind.writable]
    hidden = [one.path for one in plan.covers if isinstance(one, Cover) and one.is_dir]
    places = [path for path in places if not any(is_beneath(path, one) and path != one for one in hidden)]
    plan.writable = [*system.writable(), *places, *(target for _, target in kept), "/dev", "/proc"]


def _begun(config: Config, identity: str, user: tuple[str, int, int] | None = None) -> Layout:
    plan = Plan()
    plan.id = identity
    plan.user, plan.uid, plan.gid = user or tenant(config.user)
    plan.limits = config.limits
    plan.container_prefix = config.container_prefix
    plan.directory = project_root(config.filesystem)
    return Layout(plan)


def _caches(made: Layout, config: Config, environment: Mapping[str, str], home: str, taken: Sequence[str]) -> None:
    """Package caches, where nothing else is."""
    if found := located(config.caches, environment, home):
        from sandbox.layout.caches import shown_caches

        made.caches = list(shown_caches(found, config.filesystem, home, taken))


def _whole_host(
    config: Config,
    identity: str,
    environment: Mapping[str, str],
    repositories: Repositories | None,
    system: System | None,
) -> Layout:
    """The layout for `show_host`: tenants can read everything that is not denied."""
    from sandbox.layout import whole_host

    filesystem = config.filesystem
    _refuse_others(config, system)
    made = _begun(config, identity)
    plan = made.plan
    plan.scratch_size = filesystem.scratch_size
    plan.environment = EnvFilter.of(config, environment).filter(environment)
    home = os.path.realpath(os.path.expanduser("~"))
    whole_host.WholeHost().show(plan, home)
    writable = whole_host.show_writable(plan, filesystem, made.notices)
    own = own_directories(config)
    refuse_our_own(writable, own)
    whole_host.hide_of_host(plan, config, own, writable)
    made.views = Views([(one, one) for one in whole_host.searched(plan, filesystem, writable)])
    hide_and_freeze(made, config, own, repositories)
    hide_proc(plan)
    whole_host.host_sockets(plan, config.network)
    whole_host.drop_inner_covers(plan)
    show_sockets(plan, config.network)
    plan.writable = ["/dev/shm", *writable, "/dev", "/proc"]
    plan.environment.update(whole_host.environment(plan, home))
    plan.directory = whole_host.first_in_sight(plan, (plan.directory, home))
    _ports(plan, config.network)
    return made


def _refuse_others(config: Config, system: System | None) -> None:
    """Refuses what is not possible where the host's own paths are visible. Raises ConfigError."""
    filesystem = config.filesystem
    others = {
        "filesystem.overlay": filesystem.overlay or filesystem.branch is not None,
        "image": system is not None,
        "vfs": bool(config.vfs.mounts or config.vfs.direct_mounts),
        "credentials": bool(config.credentials),
    }
    for key, asked in others.items():
        if asked:
            raise ConfigError("cannot be combined with filesystem.show_host", path=key)


def on_host(config: Config, identity: str, environment: Mapping[str, str], directory: str | None = None) -> Layout:
    """The layout for an engine without its own root: commands see the host's paths, and a filtered environment.

    `directory`: where tenants have their home and temporary files; without it (mode `off`) those are the owner's.
    """
    plan = Plan()
    plan.id = identity
    plan.config = config
    plan.walls = plan.network = False
    plan.uid, plan.gid = os.getuid(), os.getgid()
    plan.limits = config.limits
    plan.directory = os.path.realpath(os.path.expanduser(config.filesystem.root))
    plan.environment = EnvFilter.of(config, environment).filter(environment)
    if directory is not None:
        plan.environment.update(HOME=f"{directory}/home", TMPDIR=directory, SANDBOX_ID=identity)
    return Layout(plan)


def _own(plan: Plan, home: str, filesystem: Filesystem) -> None:
    """Adds the sandbox's own directories, which are empty at the start and gone at the end."""
    plan.scratch = [("/tmp", 0o1777), ("/run", 0o755), ("/dev/shm", 0o1777), (home, 0o700)]
    plan.scratch_size = filesystem.scratch_size
    plan.links += [("/var/tmp", "/tmp"), ("/var/run", "/run")]


def _project(plan: Plan, filesystem: Filesystem, home: str, system: System) -> None:
    root = plan.directory
    plan.show(root, root, not filesystem.read_only)
    if filesystem.toolchains:
        for one in system.programs(home, root):
            plan.show(one, one, False)
    if filesystem.programs:
        _installed(plan, system.installed(filesystem.programs, home, root))


def _also_at(plan: Plan, path: str | None) -> None:
    """Adds a link to the project at `path`, unless something else is there."""
    if path is None:
        return
    taken = [bind.target for bind in plan.binds] + [one for one, _ in (*plan.scratch, *plan.links)]
    in_image = plan.image is not None and os.path.lexists(plan.image.source + path)
    if not in_image and not any(is_beneath(one, path) or is_beneath(path, one) for one in taken):
        plan.links.append((path, plan.directory))


def _installed(plan: Plan, roots: Sequence[str]) -> None:
    """Shows directories at their real paths, with a link where the configuration uses another path."""
    for path in roots:
        real = os.path.realpath(path)
        if not any(is_beneath(real, bind.target) for bind in plan.binds):
            plan.show(real, real, False)
        if real != path and not any(is_beneath(path, bind.target) for bind in plan.binds):
            plan.links.append((path, real))


def _repository(plan: Plan, home: str) -> list[str]:
    """The repository's own directory, where the project is a further work tree or lies in a repository."""
    if os.path.isdir(f"{plan.directory}/.git"):
        return []
    from sandbox.guards.git_view import outside_repository

    repositories = outside_repository(plan.directory, home)
    shown = [one for one in repositories if not any(is_beneath(one, bind.target) for bind in plan.binds)]
    for path in shown:
        plan.show(path, path, False)
        plan.environment["GIT_DISCOVERY_ACROSS_FILESYSTEM"] = "1"  # the project is a mount, the directory above is not
        # Inside, its parent is a directory that we made, which git would not trust.
        plan.files = [
            (name, mode, content + b"[safe]\n\tdirectory = *\n") if name == "/etc/gitconfig" else (name, mode, content)
            for name, mode, content in plan.files
        ]
    return shown


def _environment(plan: Plan, home: str, system: System) -> None:
    visible = [bind.target for bind in plan.binds] + [path for path, _ in plan.links]
    plan.environment.update(
        PATH=system.path(plan.environment, visible),
        HOME=home,
        TMPDIR="/tmp",
        USER=plan.user,
        LOGNAME=plan.user,
        SANDBOX_ID=plan.id,
    )


def _ports(plan: Plan, network: Network) -> None:
    """The ports the gate listens on: `localhost_ports` and, where nf_tables is missing, those that rules name."""
    for port in network.localhost_ports:
        if not 0 < port < 65536:
            raise ConfigError("{port} is not a port", port=port, path="network.localhost_ports")
    plan.loopback_ports = sorted(set(network.localhost_ports))
    named = (entry.rpartition(":")[2] for entry in network.allowed_hosts)
    wanted = {53, 80, 443, *(int(port) for port in named if port.isdecimal() and 0 < int(port) < 65536)}
    wanted |= {22} if network.allow_git else set()
    plan.ports = sorted(wanted - set(plan.loopback_ports))
