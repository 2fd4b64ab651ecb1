"""What a tenant sees: the configuration turned into a plan that engines build.

The project at its own path; the system read-only; an `/etc` written here; an empty home; nothing else of the host.
"""

from __future__ import annotations

import os

from sandbox.config.home import authority_directory, record_directory
from sandbox.config.home import home as sandbox_home
from sandbox.engines.base import Bind, Plan
from sandbox.errors import ConfigError
from sandbox.guards import dot_entries
from sandbox.guards.dot_entries import hidden_in_home
from sandbox.guards.masks import denied
from sandbox.guards.scan import Scanner, secret_files
from sandbox.guards.views import Views
from sandbox.layout.etc import etc, tenant
from sandbox.layout.toolchains import toolchain_roots
from sandbox.policy.environment import EnvFilter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.config.model import Config, Filesystem, Network
    from sandbox.guards.repositories import Repositories

# The whole of the system that programs run from. A link (merged /usr) stays a link.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")

# What /proc tells of the host. (What uid 0 could do through it even without a capability, the guest makes read-only.)
PROC_HIDDEN = (
    "acpi",
    "asound",
    "cmdline",  # the kernel's: boot loaders and clouds put tokens there
    "interrupts",
    "iomem",
    "ioports",
    "kcore",
    "key-users",
    "keys",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "pagetypeinfo",
    "sched_debug",
    "scsi",
    "slabinfo",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
)

# A project here would be the machine itself.
NO_PROJECT = (
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib64",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr",
    "/var",
    "/var/tmp",
)
KERNEL = ("/dev", "/proc", "/sys")
HOME_HIDDEN = (
    "your home directory is the project: what begins with a dot there is hidden (`filesystem.allow_read` shows what is "
    "needed), the rest can be changed; `--root DIR` shows less"
)
TOO_MANY = "there are too many blocked files to remember all: one that is moved may be readable in a later run"


def layout(
    config: Config,
    identity: str,
    environment: Mapping[str, str],
    repositories: Repositories | None = None,
    shown: Sequence[tuple[str, str, bool]] = (),
    hiding: Sequence[str] = (),
) -> Plan:
    """The plan for one sandbox. Raises ConfigError for a root or path that cannot be used.

    `shown`: further directories of the host, where tenants will see them, and whether they can change them; the caller
    has them mounted. `hiding`: inside paths at which it has something else mounted.
    """
    plan = Plan()
    plan.id = identity
    plan.user, plan.uid, plan.gid = tenant(config.user)
    plan.limits = config.limits
    plan.directory = project_root(config.filesystem)
    plan.environment = EnvFilter(config.environment).filter(environment)
    home = os.path.realpath(os.path.expanduser("~"))
    _system(plan)
    _own(plan, home, config.filesystem)
    etc(plan, home)
    _project(plan, config.filesystem, home)
    visible = [plan.directory, *further_paths(plan, config.filesystem), *_repository(plan, home)]
    # A project in /var/tmp needs a directory there, not a link to our /tmp.
    plan.links = [link for link in plan.links if not any(_beneath(one.target, link[0]) for one in plan.binds)]
    own = [os.path.realpath(path) for path in (sandbox_home(), record_directory(config), authority_directory())]
    _not_our_own([*(bind.source for bind in plan.binds), *(host for host, _, _ in shown)], own)
    if home not in visible and any(_beneath(home, one) for one in visible):
        hiding = [*hiding, home]  # also where a directory above it is the project, the inside's home is its own
        plan.hidden = [home]
    plan.views = Views([*((one, one) for one in visible), *((host, inside) for host, inside, _ in shown)], hiding)
    _home(plan, config.filesystem, home, visible)
    _guards(plan, config, own, repositories)
    _proc(plan)
    _writable(plan)
    _environment(plan, home)
    _ports(plan, config.network)
    return plan


def writable_trees(filesystem: Filesystem, shown: Sequence[tuple[str, str, bool]] = ()) -> list[str]:
    """The host's directories that tenants write into; `shown` are those that mounts add. Raises ConfigError."""
    root = project_root(filesystem)
    trees = [] if filesystem.read_only or filesystem.overlay else [root]
    for asked in filesystem.allow_write:
        trees.append(os.path.realpath(os.path.join(root, os.path.expanduser(asked))))
    trees += [os.path.realpath(source) for source, _, writable in shown if writable]
    return [one for one in dict.fromkeys(trees) if os.path.isdir(one)]


def without_walls(
    config: Config, identity: str, environment: Mapping[str, str], repositories: Repositories | None = None
) -> Plan:
    """The plan for mode `off`: commands run on the host, in the project, with the environment that was chosen."""
    plan = Plan()
    plan.id = identity
    plan.walls = plan.network = False
    plan.uid, plan.gid = os.getuid(), os.getgid()
    plan.limits = config.limits
    plan.directory = os.path.realpath(os.path.expanduser(config.filesystem.root))
    plan.environment = EnvFilter(config.environment).filter(environment)
    return plan


def _ports(plan: Plan, network: Network) -> None:
    """The ports the gate hears on: those lent to the host, and, where nf_tables is missing, those that rules name."""
    for port in network.localhost_ports:
        if not 0 < port < 65536:
            raise ConfigError(f"{port} is not a port", path="network.localhost_ports")
    plan.loopback_ports = sorted(set(network.localhost_ports))
    named = (entry.rpartition(":")[2] for entry in network.allowed_hosts)
    wanted = {53, 80, 443, *(int(port) for port in named if port.isdecimal() and 0 < int(port) < 65536)}
    wanted |= {22} if network.allow_git else set()
    plan.ports = sorted(wanted - set(plan.loopback_ports))


def project_root(filesystem: Filesystem) -> str:
    """The project's real path. Raises ConfigError when it is not a directory, or is the machine itself."""
    asked = os.path.expanduser(filesystem.root)
    root = os.path.realpath(asked)
    if not os.path.isdir(root):
        raise ConfigError(f"{asked!r} is not a directory", path="filesystem.root")
    if root in ("/tmp", "/var/tmp"):
        raise ConfigError(f"every sandbox has a {root} of its own; choose a directory in it", path="filesystem.root")
    if root in NO_PROJECT or any(root.startswith(f"{one}/") for one in KERNEL):
        raise ConfigError(
            f"{root!r} holds the system itself; choose the project's own directory", path="filesystem.root"
        )
    return root


def _system(plan: Plan) -> None:
    for path in SYSTEM:
        if os.path.islink(path):
            plan.links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            plan.binds.append(Bind(path, path))


def _own(plan: Plan, home: str, filesystem: Filesystem) -> None:
    """The sandbox's own places: empty at the start, gone at the end."""
    plan.scratch = [("/tmp", 0o1777), ("/run", 0o755), ("/dev/shm", 0o1777), (home, 0o700)]
    plan.scratch_size = filesystem.scratch_size
    plan.links += [("/var/tmp", "/tmp"), ("/var/run", "/run")]


def _project(plan: Plan, filesystem: Filesystem, home: str) -> None:
    root = plan.directory
    plan.binds.append(Bind(root, root, writable=not filesystem.read_only))
    if filesystem.toolchains:
        path = os.environ.get("PATH", "")
        for one in toolchain_roots(path, home, root):
            plan.binds.append(Bind(one, one))


def _repository(plan: Plan, home: str) -> list[str]:
    """The repository's own directory, where the project is a further work tree or lies in a repository."""
    if os.path.isdir(f"{plan.directory}/.git"):
        return []
    from sandbox.guards.git_view import outside_repository

    shown = [one for one in outside_repository(plan.directory, home) if not _seen(plan, one)]
    for path in shown:
        plan.binds.append(Bind(path, path))
        plan.environment["GIT_DISCOVERY_ACROSS_FILESYSTEM"] = "1"  # the project is a mount, the directory above is not
        # The directory that it is in is ours inside, which git would not trust.
        plan.files = [
            (name, mode, content + b"[safe]\n\tdirectory = *\n") if name == "/etc/gitconfig" else (name, mode, content)
            for name, mode, content in plan.files
        ]
    return shown


def _seen(plan: Plan, path: str) -> bool:
    return any(_beneath(path, bind.target) for bind in plan.binds)


def further_paths(plan: Plan, filesystem: Filesystem) -> list[str]:
    """The further paths; returns them as tenants see them. Raises ConfigError for one that cannot be shown."""
    shown: list[str] = []
    for key, paths, writable in (
        ("allow_read", filesystem.allow_read, False),
        ("allow_write", filesystem.allow_write, True),
    ):
        for asked in paths:
            path = os.path.abspath(os.path.join(plan.directory, os.path.expanduser(asked)))
            if not os.path.exists(path):
                raise ConfigError(f"{asked!r} does not exist", path=f"filesystem.{key}")
            real = os.path.realpath(path)
            if (writable and real in NO_PROJECT) or _beneath(real, "/proc") or (writable and _beneath(real, "/sys")):
                raise ConfigError(f"{real!r} holds the system itself", path=f"filesystem.{key}")
            plan.binds.append(Bind(real, real, writable))
            if real != path and not any(_beneath(path, bind.target) for bind in plan.binds):
                plan.links.append((path, real))
            shown.append(real)
    return shown


def _home(plan: Plan, filesystem: Filesystem, home: str, visible: list[str]) -> None:
    """Where the project holds the home directory: its dot entries are not the project's."""
    directories: list[str] = []
    files: list[str] = []
    if home in visible:
        directories, files = hidden_in_home(home, visible)
    elif plan.hidden and filesystem.overlay:
        directories = [home]  # the overlay's mount lies above that of the inside's own home
    if not (directories or files):
        return
    plan.hidden = [*directories, *files]
    path = os.environ.get("PATH", "") if filesystem.toolchains else ""
    writable = [bind.target for bind in plan.binds if bind.writable]
    wanted = dict.fromkeys((*toolchain_roots(path, home, os.devnull), *visible))
    ours = os.path.realpath(sandbox_home())
    kept = [one for one in wanted if any(_beneath(one, top) for top in directories) and not _beneath(one, ours)]
    for number, one in enumerate(kept):
        plan.binds.append(Bind(one, f"{dot_entries.STAGE}-{number}", one in writable))
    for operation in dot_entries.operations(directories, kept, plan.scratch_size):
        operation["ro"] = operation.get("ro", False) and os.fsdecode(operation["path"]) not in writable  # type: ignore[arg-type]
        plan.operations.append(operation)
    for one in files:
        for shown in plan.views.inside(one):
            plan.rules[shown] = "a dot file of the home directory"
            plan.operations.append({"kind": "mask", "path": os.fsencode(shown), "dir": False, "optional": True})
    if home in visible:
        plan.notices.append(HOME_HIDDEN)


def _not_our_own(sources: list[str], own: list[str]) -> None:
    """Config, record and registry are never a tenant's. Raises ConfigError. (What merely holds them, masks cover.)"""
    for source in sources:
        if any(_beneath(source, place) for place in own):
            raise ConfigError(f"{source!r} holds the sandbox's own config, record or registry", path="filesystem")


def _guards(plan: Plan, config: Config, own: list[str], repositories: Repositories | None) -> None:
    """Blocked files are covered, and what programs of the host would run is read-only.

    Outer paths first, since a mount inside another is the one that counts. What has gone since needs no cover: when
    something else changed meanwhile, `settle` looks again before any tenant runs.
    """
    filesystem, inside = config.filesystem, plan.views.inside
    plan.search = Scanner(filesystem, plan.views, own, secret_files(config), hidden=plan.hidden).look()
    covers = plan.search.found
    if not plan.search.kept:
        plan.notices.append(TOO_MANY)
    if covers.heads or covers.git_files or repositories is not None:
        from sandbox.guards.freezing import freeze_repositories

        freeze_repositories(covers, plan.views.roots, repositories, protected=dict(covers.frozen))
    for path in (os.fsencode(one) for host in sorted(covers.pinned) for one in inside(host)):
        # A mount point cannot be renamed: nobody puts `.git` aside and makes one of their own.
        plan.operations.append({"kind": "bind", "path": path, "from": path, "optional": True})
    for path in (os.fsencode(one) for host in sorted(covers.frozen) for one in inside(host)):
        plan.operations.append({"kind": "bind", "path": path, "from": path, "ro": True, "optional": True})
    for host, mask in sorted(covers.masks.items()):
        for name in inside(host):
            plan.rules[name] = mask.rule
            # An overlay may have numbers of its own.
            inode = mask.inode if name == host and not filesystem.overlay else 0
            plan.operations.append(
                {"kind": "mask", "path": os.fsencode(name), "dir": mask.is_dir, "inode": inode, "optional": True}
            )
    places = [bind.target for bind in plan.binds if not inside(bind.target)]
    elsewhere = denied(filesystem, places, plan.views.roots)
    for mask in elsewhere:
        plan.rules[mask.path] = mask.rule
        plan.operations.append({"kind": "mask", "path": os.fsencode(mask.path), "dir": mask.is_dir, "optional": True})
    plan.masked, plan.frozen = len(covers.masks) + len(elsewhere), len(covers.frozen)


def _proc(plan: Plan) -> None:
    for name in PROC_HIDDEN:
        path = f"/proc/{name}"
        if os.path.exists(path):
            plan.operations.append(
                {"kind": "mask", "path": path.encode(), "dir": os.path.isdir(path), "optional": True}
            )


def _writable(plan: Plan) -> None:
    places = [path for path, _ in plan.scratch] + [bind.target for bind in plan.binds if bind.writable]
    plan.writable = [*places, "/dev", "/proc"]
    # What is left of the root is only mount points: nothing there is a tenant's to change.
    plan.operations.append({"kind": "remount", "path": b"/", "ro": True})


def _environment(plan: Plan, home: str) -> None:
    """PATH without what is not there inside; places that exist."""
    visible = [bind.target for bind in plan.binds] + [path for path, _ in plan.links]
    path = [
        one
        for one in plan.environment.get("PATH", os.defpath).split(":")
        if any(one == place or one.startswith(f"{place}/") for place in visible)
    ]
    plan.environment.update(
        PATH=":".join(path) or "/usr/local/bin:/usr/bin:/bin",
        HOME=home,
        TMPDIR="/tmp",
        USER=plan.user,
        LOGNAME=plan.user,
        SANDBOX=plan.id,
    )


def _beneath(path: str, ancestor: str) -> bool:
    return path == ancestor or path.startswith(ancestor.rstrip("/") + "/")
