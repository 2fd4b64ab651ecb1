"""What a tenant sees: the configuration turned into a plan that engines build.

The project at its own path; the system read-only; an `/etc` written here; an empty home; nothing else of the host.
"""

from __future__ import annotations

import os

from sandbox.config.home import home as sandbox_home
from sandbox.config.home import authority_directory, record_directory
from sandbox.engines.base import Bind, Plan
from sandbox.engines.etc import etc, user_name
from sandbox.engines.in_place import open_in_place
from sandbox.engines.masks import find
from sandbox.engines.toolchains import toolchain_roots
from sandbox.errors import ConfigError
from sandbox.policy.environment import EnvFilter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.config.model import Config, Filesystem, Network

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


def layout(config: Config, identity: str, environment: Mapping[str, str]) -> Plan:
    """The plan for one sandbox. Raises ConfigError for a root or path that cannot be used."""
    plan = Plan()
    plan.id = identity
    plan.uid, plan.gid = os.getuid(), os.getgid()
    plan.limits = config.limits
    plan.directory = project_root(config.filesystem)
    plan.environment = EnvFilter(config.environment).filter(environment)
    home = os.path.realpath(os.path.expanduser("~"))
    _system(plan)
    _own(plan, home, config.filesystem)
    etc(plan, home)
    _project(plan, config.filesystem, home)
    visible = [plan.directory, *_paths(plan, config.filesystem)]
    # A project in /var/tmp needs a directory there, not a link to our /tmp.
    plan.links = [link for link in plan.links if not any(_beneath(one.target, link[0]) for one in plan.binds)]
    own = [os.path.realpath(path) for path in (sandbox_home(), record_directory(config), authority_directory())]
    _not_our_own(plan, own)
    _guards(plan, config.filesystem, visible, own)
    _proc(plan)
    _writable(plan)
    _environment(plan, home)
    _ports(plan, config.network)
    return plan


def without_walls(config: Config, identity: str, environment: Mapping[str, str]) -> Plan:
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


def _paths(plan: Plan, filesystem: Filesystem) -> list[str]:
    """The further paths; returns them as tenants see them."""
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


def _not_our_own(plan: Plan, own: list[str]) -> None:
    """Config, record and registry are never a tenant's. Raises ConfigError. (What merely holds them, masks cover.)"""
    for bind in plan.binds:
        if any(_beneath(bind.source, place) for place in own):
            raise ConfigError(f"{bind.source!r} holds the sandbox's own config, record or registry", path="filesystem")


def _guards(plan: Plan, filesystem: Filesystem, visible: list[str], own: list[str]) -> None:
    """Blocked files are covered, and what programs of the host would run is read-only.

    Outer paths first, since a mount inside another is the one that counts. What has gone since needs no cover.
    """
    covers = find(filesystem, visible, own)
    configs = [path for path in covers.frozen if path.endswith("/config") and "/.git/" in path]
    repositories = (os.path.dirname(path) for path in configs)
    plan.repositories = [path for path in repositories if not os.path.lexists(f"{path}/commondir")]
    if not filesystem.overlay and not filesystem.read_only:
        covers.frozen.update(_hooks_directories(plan.repositories))
    for path in map(os.fsencode, sorted(covers.pinned)):
        # A mount point cannot be renamed: nobody puts `.git` aside and makes one of their own.
        plan.operations.append({"kind": "bind", "path": path, "from": path, "optional": True})
    for path in map(os.fsencode, sorted(covers.frozen)):
        plan.operations.append({"kind": "bind", "path": path, "from": path, "ro": True, "optional": True})
    for name, mask in sorted(covers.masks.items()):
        plan.rules[name] = mask.rule
        plan.operations.append({"kind": "mask", "path": os.fsencode(name), "dir": mask.is_dir, "optional": True})
    plan.masked, plan.frozen, plan.visible = len(covers.masks), len(covers.frozen), visible


def _hooks_directories(repositories: list[str]) -> dict[str, None]:
    """An empty `hooks` where a repository has none: else a tenant makes it, and what git of the host then runs."""
    made: dict[str, None] = {}
    for repository in repositories:
        path = f"{repository}/hooks"
        if not os.path.lexists(path):
            try:
                place = open_in_place(repository)
            except OSError:
                continue  # gone, or another's
            try:
                os.mkdir("hooks", 0o755, dir_fd=place)
                if os.geteuid() == 0:
                    owner = os.stat(place)
                    os.chown("hooks", owner.st_uid, owner.st_gid, dir_fd=place, follow_symlinks=False)
            except OSError:
                continue  # then it is not a tenant's to make either
            finally:
                os.close(place)
            made[path] = None
    return made


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
        USER=user_name(plan.uid),
        LOGNAME=user_name(plan.uid),
        SANDBOX=plan.id,
    )


def _beneath(path: str, ancestor: str) -> bool:
    return path == ancestor or path.startswith(ancestor.rstrip("/") + "/")
