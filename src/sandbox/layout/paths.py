"""Which paths of the host a configuration names: the project, and the further paths that tenants read or write."""

from __future__ import annotations

import os
import stat

from sandbox.config.paths import is_beneath
from sandbox.config.patterns import fold
from sandbox.errors import ConfigError
from sandbox.policy.protected import PROTECTED_TOPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sandbox.config.model import Filesystem
    from sandbox.plan.plan import Plan

# A project here would include the machine itself.
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


def _real(path: str, filesystem: Filesystem, key: str) -> str:
    """The real path. Raises ConfigError if it is not the path that was judged."""
    real = os.path.realpath(path)
    if real != path and path in filesystem.settled:
        raise ConfigError("{link!r} has become a link to elsewhere", path=f"filesystem.{key}", link=path)
    return real


def frozen_project(filesystem: Filesystem) -> str | None:
    """The directory that makes the project read-only although nobody asked for that, because programs on the host act
    on it; None if there is none, or if `allow_write` names the project."""
    if filesystem.read_only or filesystem.overlay or filesystem.show_host:
        return None
    root = project_root(filesystem)
    named = (os.path.realpath(os.path.join(root, os.path.expanduser(one))) for one in filesystem.allow_write)
    return None if root in named else acted_on(root)


def acted_on(root: str) -> str | None:
    """The directory that programs on the host act on (`~/.claude`, `.git`), if the project is that or is in it.

    A repository that was made there, such as a worktree in `.claude/worktrees`, is a project like any other."""
    place = root
    while place != "/":
        name = fold(os.path.basename(place))
        # Workspaces of our own server are in `~/.sandbox`.
        if name in PROTECTED_TOPS and (place == root or name != ".sandbox"):
            return place
        if os.path.lexists(f"{place}/.git"):
            return None
        place = os.path.dirname(place)
    return None


def project_root(filesystem: Filesystem) -> str:
    """The project's real path. Raises ConfigError when it is not a directory, or is the machine itself."""
    asked = os.path.expanduser(filesystem.root)
    root = _real(asked, filesystem, "root")
    if not os.path.isdir(root):
        raise ConfigError("{asked!r} is not a directory", asked=asked, path="filesystem.root")
    if root != os.path.abspath(asked):
        from sandbox.guards.planted_links import refuse_planted

        refuse_planted(asked, "filesystem.root")
    if filesystem.show_host:
        return root
    if root in ("/tmp", "/var/tmp"):
        raise ConfigError(
            "every sandbox has its own {root}; choose a directory in it", root=root, path="filesystem.root"
        )
    if root in NO_PROJECT or any(root.startswith(f"{one}/") for one in KERNEL):
        raise ConfigError(
            "{root!r} contains the system; choose the project's own directory", root=root, path="filesystem.root"
        )
    return root


def expanded(root: str, entry: str, *, through_links: bool = False) -> list[str]:
    """The existing paths that an entry of a path list means: the path it spells, or, where it is a glob, each match.

    What a glob finds through a link below its literal part counts only with `through_links`: tenants of an earlier run
    may have put the link there. `src/**` means `src`. A glob also means the file that has exactly that name.
    """
    path = os.path.normpath(os.path.join(root, os.path.expanduser(entry)))
    if path.endswith("/**"):
        path = path[:-3] or "/"
    if not any(sign in path for sign in "*?["):
        return [path] if os.path.lexists(path) and os.path.exists(path) else []
    from sandbox.config.glob_paths import matches

    parts = path.split("/")
    literal = next(index for index, part in enumerate(parts) if any(sign in part for sign in "*?["))
    base = "/".join(parts[:literal]) or "/"
    real = os.path.realpath(base)
    found = [path] if os.path.exists(path) else []
    # A link to a directory above leads to the whole disk, and to nothing that the glob does not find anyway.
    for match in matches(path, (lambda target: not is_beneath(real, target)) if through_links else None):
        below = os.path.relpath(match, base)
        if through_links or os.path.realpath(match) == os.path.normpath(os.path.join(real, below)):
            found.append(match)
    return found


def is_own_way(path: str, tops: Iterable[str] = ()) -> bool:
    """Whether no tenant of an earlier run can have made a link on the way of `path`: there is none, or only one that
    leads to the home directory, to one of `tops`, or lies in `/` (`/home`)."""
    real = os.path.realpath(path)
    first = "/" + path.split("/", 2)[1]
    ways = (top for top in (os.path.expanduser("~"), first, *tops) if is_beneath(path, top))
    return real == path or any(real == os.path.realpath(top) + path[len(top) :] for top in ways)


def allowed_to_write(filesystem: Filesystem, root: str, entry: str) -> list[str]:
    """The existing paths that an entry of `allow_write` means. In the settings of srt a link counts for nothing."""
    return [path for path in expanded(root, entry) if not filesystem.show_host or is_own_way(path)]


def is_shared(path: str) -> bool:
    """Whether all users share a directory, such as /tmp: everybody writes there, it changes all the time, and it holds
    nobody's work."""
    info = os.stat(path)
    return bool(info.st_mode & stat.S_ISVTX and info.st_mode & stat.S_IWOTH)


def writable_trees(
    filesystem: Filesystem, shown: Sequence[tuple[str, str, bool]] = (), *, searched: bool = False
) -> list[str]:
    """The host's directories that tenants can write to; `shown` are those that mounts add. `searched`: only those that
    are searched for what to hide and freeze. Raises ConfigError."""
    root = project_root(filesystem)
    trees = [] if filesystem.read_only or filesystem.overlay else [root]
    for asked in filesystem.allow_write:
        trees += [_real(path, filesystem, "allow_write") for path in allowed_to_write(filesystem, root, asked)]
    trees += [os.path.realpath(source) for source, _, writable in shown if writable]
    found = [one for one in dict.fromkeys(trees) if os.path.isdir(one)]
    if filesystem.show_host and searched:
        return [one for one in found if not is_shared(one)]
    return found


def further_paths(plan: Plan, filesystem: Filesystem) -> list[str]:
    """Adds the further paths to the plan; returns them as tenants see them. Raises ConfigError if one is impossible."""
    shown: list[str] = []
    home = os.path.realpath(os.path.expanduser("~"))  # if it is below the project, tenants see an empty one instead
    for key, paths, writable in (
        ("allow_read", filesystem.allow_read, False),
        ("allow_write", filesystem.allow_write, True),
    ):
        for path in _each(plan.directory, paths, key):
            real = _real(path, filesystem, key)
            if real == "/":
                raise ConfigError(
                    "shows the whole machine; for that, use filesystem.show_host", path=f"filesystem.{key}"
                )
            if real != path:
                from sandbox.guards.planted_links import refuse_planted

                refuse_planted(path, f"filesystem.{key}", [] if filesystem.read_only else [plan.directory])
            own_home = is_beneath(home, plan.directory) and home != plan.directory and is_beneath(real, home)
            if not writable and is_beneath(real, plan.directory) and not own_home:
                shown.append(real)  # it is there already; a mount of its own would make it read-only
                continue
            if (
                (writable and real in NO_PROJECT)
                or is_beneath(real, "/proc")
                or (writable and is_beneath(real, "/sys"))
            ):
                raise ConfigError("{real!r} contains the system", real=real, path=f"filesystem.{key}")
            plan.show(real, real, writable)
            if real != path and not any(is_beneath(path, bind.target) for bind in plan.binds):
                plan.links.append((path, real))
            shown.append(real)
    return shown


def _each(root: str, entries: list[str], key: str) -> Iterator[str]:
    for asked in entries:
        found = expanded(root, asked)
        if not found and not any(sign in asked for sign in "*?["):
            raise ConfigError("{asked!r} does not exist", asked=asked, path=f"filesystem.{key}")
        yield from found


def refuse_our_own(sources: list[str], own: list[str]) -> None:
    """Raises ConfigError if a source is in our config, record or registry. (If it contains them, masks cover them.)"""
    for source in sources:
        if any(is_beneath(source, place) for place in own):
            raise ConfigError(
                "{source!r} contains the sandbox's own config, record or registry", source=source, path="filesystem"
            )
