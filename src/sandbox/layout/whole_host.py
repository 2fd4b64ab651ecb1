"""The whole host at `/`, read-only: what srt's users expect (`filesystem.show_host`).

Each entry of the host's root is one recursive bind. What no tenant may see is covered: our own config, record and
registry, further mounts in which the kernel shows the host's processes, and what `deny_read` names. The host's Unix
sockets cannot be covered one by one, because a new one may appear in any directory at any time. So tenants cannot make
Unix sockets here.
"""

from __future__ import annotations

import os
import stat

from sandbox.config.paths import is_beneath
from sandbox.errors import ConfigError, Message
from sandbox.guards.covers import placeholder_of
from sandbox.guards.scan import secret_files
from sandbox.layout.etc import HOSTS, RESOLVER
from sandbox.layout.paths import allowed_to_write, expanded, is_own_way, is_shared
from sandbox.layout.system import System
from sandbox.plan.mount_operations import Bind, Cover, MakeReadOnly, Tmpfs, Unmount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sandbox.config.model import Config, Filesystem, Network
    from sandbox.plan.plan import Plan

OWN_FILES = "/.sandbox-files"
STAGE = "/.sandbox-kept"
TMPDIR = "/tmp/claude"  # srt's
# srt lets these be written where they are, without being asked.
ALWAYS_WRITABLE = (TMPDIR, "~/.npm/_logs", "~/.claude/debug")
OWN = "the sandbox's own"
KERNEL = ("/proc", "/dev", "/sys")
MOST = 1000  # paths that one entry may stand for


class WholeHost(System):
    """Everything in the host's root but /proc and /dev."""

    def show(self, plan: Plan, home: str) -> None:
        plan.whole_host, plan.own_files = True, OWN_FILES
        plan.scratch = [("/dev/shm", 0o1777)]
        for name in os.listdir("/"):
            path = f"/{name}"
            if os.path.islink(path):
                plan.links.append((path, os.readlink(path)))
            elif path not in ("/proc", "/dev", OWN_FILES):
                plan.show(path, path, False)

    def installed(self, programs: Sequence[str], home: str, project: str) -> list[str]:
        return []

    def programs(self, home: str, project: str) -> list[str]:
        return []


def _names(plan: Plan) -> None:
    """Makes the gate resolve names, on the host, as with srt's proxy. The host's own files would point elsewhere."""
    written = {"hosts": HOSTS, "resolv.conf": f"nameserver {RESOLVER}\n".encode(), "nsswitch.conf": _nsswitch()}
    for name, content in written.items():
        real = os.path.realpath(f"/etc/{name}")
        if os.path.isfile(real):
            plan.files.append((f"{OWN_FILES}/{name}", 0o644, content))
            plan.covers.append(Bind(real, f"{OWN_FILES}/{name}", read_only=True, optional=True))


def _nsswitch() -> bytes:
    try:
        with open("/etc/nsswitch.conf", "rb") as file:
            lines = file.read(2**16).splitlines()
    except OSError:
        lines = []
    return b"".join(line + b"\n" for line in lines if not line.startswith(b"hosts:")) + b"hosts: files dns\n"


def show_writable(plan: Plan, filesystem: Filesystem, notices: list[str]) -> list[str]:
    """Adds what tenants may write to: the project, unless it is read-only, and `allow_write`. Returns the real paths.
    Raises ConfigError.

    What does not exist, and what is a link, is left out, as srt does, with a notice. What is below another path needs
    no mount of its own, and must not get one: tenants of an earlier run may have put a link there. But in a directory
    that all users share (/tmp), which is not searched, the project is a tree of its own.
    """
    denied = _denied(plan.directory, filesystem)
    asked = [] if filesystem.read_only else [plan.directory]
    for entry in filesystem.allow_write:
        found = allowed_to_write(filesystem, plan.directory, entry)
        if entry == TMPDIR:
            found = [TMPDIR] if _own_temporary() else []
        elif entry in ALWAYS_WRITABLE:  # a convenience, which must not uncover what was denied
            found = [one for one in found if not any(is_beneath(os.path.realpath(one), place) for place in denied)]
        if not found and entry not in ALWAYS_WRITABLE:
            notices.append(_left_out(entry, expanded(plan.directory, entry)))
        if len(found) > MOST:
            raise ConfigError("{entry!r} matches too many paths", entry=entry, path="filesystem.allow_write")
        asked += found
    shown: list[str] = []
    for path in sorted(dict.fromkeys(asked), key=len):
        real = os.path.realpath(path)
        if real == "/" or any(is_beneath(real, one) for one in ("/proc", "/sys", "/dev")):
            raise ConfigError("{real!r} contains the system", real=real, path="filesystem.allow_write")
        over = [one for one in shown if is_beneath(path, one) or is_beneath(real, os.path.realpath(one))]
        if not over or (path == plan.directory and all(is_shared(one) for one in over)):
            plan.show(real, real, True)
            shown.append(path)
    return [os.path.realpath(path) for path in shown]


def _left_out(entry: str, links: list[str]) -> Message:
    if links:
        real = os.path.realpath(links[0])
        return Message(
            "{path} leads through a link and is left out of what can be written; name {real}", path=entry, real=real
        )
    # `[*]` is how srt's dialect writes a literal `*`; people know the path as they wrote it.
    written = entry.replace("[*]", "*").replace("[?]", "?").replace("[[]", "[")
    return Message("{path} does not exist and is left out of what can be written", path=written)


def _own_temporary() -> bool:
    """Makes srt's directory for temporary files; False if it belongs to somebody else."""
    try:
        os.mkdir(TMPDIR, 0o700)
    except OSError:
        pass
    try:
        info = os.lstat(TMPDIR)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()


def hide_of_host(plan: Plan, config: Config, own: Iterable[str], writable: Sequence[str]) -> None:
    """Covers what no tenant may see, and what `deny_read` names, in places that are not searched: outside `writable`,
    and in directories of it that all users share. Pins the directories above what is covered, frozen or searched."""
    filesystem = config.filesystem
    searched = [one for one in writable if not is_shared(one)]
    denied = _denied(plan.directory, filesystem)
    allowed = [path for entry in filesystem.allow_read for path in _opened(plan.directory, entry, filesystem)]
    stay = [*allowed, *writable]
    hollow = {path: [one for one in stay if is_beneath(one, path)] for path in denied if os.path.isdir(path)}
    _hollow(plan, {path: kept for path, kept in hollow.items() if kept and path not in kept}, writable)
    _names(plan)
    for path in own:
        os.makedirs(path, 0o700, exist_ok=True)  # if it were made while tenants run, they would see it
    found = [Cover(path, True, rule=OWN) for path in own]
    secrets = ((os.path.realpath(os.path.expanduser(path)), rule) for path, rule in secret_files(config).items())
    found += (Cover(path, False, rule=rule) for path, rule in secrets)
    found += (
        Cover(path, os.path.isdir(path), rule="deny_read")
        for path in denied
        if not hollow.get(path) and path not in allowed
    )
    found = [one for one in found if not any(is_beneath(one.path, tree) for tree in searched)]
    shared = [one for one in writable if one not in searched]
    frozen = [path for entry in filesystem.deny_write for path in expanded(plan.directory, entry, through_links=True)]
    spelled = (os.path.join(plan.directory, os.path.expanduser(entry)) for entry in filesystem.deny_write)
    frozen += (one for one in map(placeholder_of, map(os.path.normpath, spelled)) if one is not None)
    frozen = [one for one in map(os.path.realpath, frozen) if any(is_beneath(one, tree) for tree in shared)]
    kept = [*searched, *frozen, *(one.path for one in found)]
    plan.covers += (Bind(path, path, optional=True) for path in _above(kept, shared))
    plan.covers += (Bind(path, path, read_only=True, optional=True) for path in sorted(frozen, key=len))
    plan.covers += found
    plan.covers += (Cover(path, os.path.isdir(path), rule="the kernel's") for path in _kernel_mounts())


def searched(plan: Plan, filesystem: Filesystem, writable: Sequence[str]) -> list[str]:
    """The directories in which blocked patterns hold: what tenants may write to, the project, and `allow_read`."""
    trees = [one for one in writable if not is_shared(one)]
    if not filesystem.blocked_patterns:
        return trees
    denied = _denied(plan.directory, filesystem)
    named = [path for entry in filesystem.allow_read for path in _opened(plan.directory, entry, filesystem)]
    if not any(is_beneath(plan.directory, place) for place in denied):
        named.append(plan.directory)
    named = [one for one in named if one != "/" and not any(is_beneath(one, tree) for tree in trees)]
    return [*trees, *(one for one in dict.fromkeys(named) if not os.path.isdir(one) or not is_shared(one))]


def _above(paths: Iterable[str], trees: Sequence[str]) -> list[str]:
    """The directories between the trees and the paths in them. A mount point cannot be renamed."""
    found: dict[str, None] = {}
    for path in paths:
        above = os.path.dirname(path)
        while any(is_beneath(above, tree) and above != tree for tree in trees):
            found[above] = None
            above = os.path.dirname(above)
    return sorted(found, key=len)


def _opened(root: str, entry: str, filesystem: Filesystem) -> Iterator[str]:
    """The real paths that an entry of `allow_read` makes readable again. A path with a link in it counts for nothing,
    because a tenant of an earlier run may have made the link, unless `deny_read` names its directory by the same link:
    that one is the person's own."""
    tops = [os.path.normpath(os.path.join(root, os.path.expanduser(one))) for one in filesystem.deny_read]
    return (os.path.realpath(path) for path in expanded(root, entry) if is_own_way(path, tops))


def _denied(root: str, filesystem: Filesystem) -> list[str]:
    """The real paths that `deny_read` names, outer ones first."""
    found: dict[str, None] = {}
    for entry in filesystem.deny_read:
        for path in expanded(root, entry, through_links=True):
            real = os.path.realpath(path)
            if real == "/" and "/" in filesystem.allow_read:
                continue
            if real == "/":
                tops = (f"/{name}" for name in os.listdir("/") if f"/{name}" not in KERNEL)
                found |= dict.fromkeys(one for one in tops if os.path.isdir(one) and not os.path.islink(one))
            else:
                found[real] = None
    return sorted(found, key=len)


def _hollow(plan: Plan, hollow: dict[str, list[str]], writable: Sequence[str]) -> None:
    """Shows directories as empty except for what stays visible in them. So what is made there later is hidden too."""
    number = 0
    for path, kept in hollow.items():
        plan.covers.append(Tmpfs(path, 0o755, 2**20))
        mounted: list[str] = []
        for one in sorted(dict.fromkeys(kept), key=len):
            over = [other for other in mounted if is_beneath(one, other)]
            if over and (one not in writable or over[-1] in writable):
                continue  # it is visible with the directory that contains it
            stage = f"{STAGE}-{number}"
            number += 1
            plan.show(one, stage, one in writable)
            plan.covers += (Bind(one, stage, read_only=one not in writable, make=True), Unmount(stage))
            mounted.append(one)
        plan.covers.append(MakeReadOnly(path))


def _kernel_mounts() -> Iterator[str]:
    """Mounts in which the kernel describes the host, wherever they are: a second /proc shows the host's processes."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            before, _, after = line.partition(" - ")
            path, kind = _unescaped(before.split(" ")[4]), after.split(" ")[0]
            if any(is_beneath(path, own) for own in ("/proc", "/dev")):
                continue  # tenants have their own
            if kind == "proc" or (is_beneath(path, "/sys") and kind not in ("sysfs", "cgroup", "cgroup2")):
                yield _reachable(path)


def _reachable(path: str) -> str:
    """`path`, or the directory above it that we cannot enter, because nothing can be mounted below that."""
    while path != "/":
        try:
            os.stat(path)
            return path
        except PermissionError:
            path = os.path.dirname(path)
        except OSError:
            return path  # it has gone
    return path


def _unescaped(path: str) -> str:
    if "\\" not in path:
        return path
    plain = path.encode("utf-8", "surrogateescape").decode("unicode_escape").encode("latin-1")
    return os.fsdecode(plain)


def host_sockets(plan: Plan, network: Network) -> None:
    """Allows no Unix sockets, all that are visible, or those that were named; then it covers the others that exist."""
    asked = [os.path.realpath(os.path.join(plan.directory, os.path.expanduser(one))) for one in network.unix_sockets]
    plan.unix_sockets = bool(asked)
    if not asked or "*" in network.unix_sockets:
        return
    from sandbox.guards.host_sockets import named_sockets_of_the_host

    for path in named_sockets_of_the_host():
        if path not in asked:
            plan.covers.append(Cover(path, False, rule="a socket of the host"))


def drop_inner_covers(plan: Plan) -> None:
    """Keeps one cover for each place. Nobody gets through an outer one, and mounting below a tripwire would hang."""
    covers = {one.path: one for one in reversed(plan.covers) if isinstance(one, Cover)}  # the first of each path
    kept: set[Cover] = set()
    outer: Cover | None = None
    for path in sorted(covers, key=lambda one: one.split("/")):
        if outer is None or not is_beneath(path, outer.path):
            kept.add(covers[path])
            outer = covers[path] if covers[path].is_dir else outer
    plan.covers = [one for one in plan.covers if not isinstance(one, Cover) or one in kept]


def first_in_sight(plan: Plan, places: Sequence[str]) -> str:
    """The first of some directories that can be entered, or `/`. As with srt, a command starts even if the project is
    hidden from it, and there, if some of it stays visible."""
    shown = [one.path for one in plan.covers if isinstance(one, Bind)]
    for place in places:
        over = [one for one in plan.covers if is_beneath(place, one.path) and isinstance(one, (Cover, Tmpfs, Bind))]
        if not over or isinstance(over[-1], Bind):
            return place
        if isinstance(over[-1], Tmpfs) and any(is_beneath(one, place) for one in shown):
            return place
    return "/"


def environment(plan: Plan, home: str) -> dict[str, str]:
    """The variables that differ inside. TMPDIR is srt's directory if that is writable, or /tmp, or else the sandbox's
    own."""
    temporary = next(
        (one for one in (TMPDIR, "/tmp") if any(is_beneath(one, top) for top in plan.writable)), "/dev/shm"
    )
    names = ("TMPDIR", *(name for name in ("TMP", "TEMP") if name in plan.environment))
    return {**dict.fromkeys(names, temporary), "HOME": home, "SANDBOX_RUNTIME": "1", "SANDBOX_ID": plan.id}
