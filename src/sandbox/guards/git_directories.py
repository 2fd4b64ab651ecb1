"""git repositories in the trees that tenants can write to: what the host's git reads there, and would run.

A directory is a repository if git would treat it as one, whatever its name: it has `HEAD`, and either `objects` and
`refs` or a `commondir` that points to them. What its configuration names is looked up as git does, but without running
git, and every condition (`includeIf`) counts as true.
"""

from __future__ import annotations

import os
import stat

from sandbox.guards.git_config import MOST, UnreadableConfig, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox.guards.git_config import Entry

CONFIGS = ("config", "config.worktree")
READ = (*CONFIGS, "commondir", "hooks")  # in a repository's directory: settings and programs
SMALL = 1 << 14
DEEP = 10  # levels of included files, as in git
REBASE_STEPS = "rebase-merge/git-rebase-todo"
UNDER_WAY = ("rebase-merge", "rebase-apply", "sequencer")  # directories of a rebase or cherry-pick
OPTIONS = ("rebase-merge/strategy", "rebase-apply/strategy", "sequencer/opts")  # of an unfinished rebase or cherry-pick


# What git, and what extends it, keeps in a repository. No work tree is there, whatever a `.git` file in it says.
OWN_DIRECTORIES = frozenset((
    "objects", "refs", "reftable", "logs", "info", "hooks", "worktrees", "modules", "branches", "remotes", "rr-cache",
    "common", "svn", "lfs", "annex", "subtree-cache", "filter-repo", *UNDER_WAY,
))  # fmt: skip


class TrustedGit:
    """What the host's git used before any tenant ran, and what must therefore stay unchanged."""

    __slots__ = ("frozen", "absent", "links", "commands", "hooked", "configs", "settings")

    def __init__(self) -> None:
        self.frozen: dict[str, None] = {}  # files and directories that are there
        self.absent: dict[str, None] = {}  # names that git looks for and that do not exist
        self.links: dict[str, str] = {}  # symbolic links on paths to trusted files, and their targets
        self.commands: dict[str, None] = {}  # `exec` lines of rebases that are under way
        self.configs: dict[str, str] = {}  # those of `frozen` that are configurations, each with its state
        self.settings: dict[str, None] = {}  # what is in them and is not known to be harmless, by digest
        self.hooked: dict[str, None] = {}  # files that hooks name and that do not exist: an installation may make them


def is_repository(directory: str) -> bool:
    """Whether git would treat the directory as a repository."""
    if not os.path.lexists(f"{directory}/HEAD"):
        return False
    if os.path.lexists(f"{directory}/commondir"):
        return True
    return os.path.lexists(f"{directory}/objects") and os.path.lexists(f"{directory}/refs")


def work_tree_of(repository: str, path: str, is_git_file: Callable[[str], bool]) -> str | None:
    """The work tree within `repository`, which is bare, that `path` lies in; None if it lies in none. git writes there
    as in any other work tree, and keeps nothing of its own. `is_git_file`: whether a `.git` file was the person's."""
    inside = path[len(repository) + 1 :].split("/")
    if os.path.basename(repository) == ".git" or inside[0].lower() in OWN_DIRECTORIES:
        return None
    above = (f"{repository}/{'/'.join(inside[:end])}" for end in range(1, len(inside)))
    return next((one for one in above if is_git_file(f"{one}/.git")), None)


def beneath(path: str, tops: Sequence[str]) -> bool:
    """Whether `path` is one of `tops` or lies in one."""
    return any(path == top or path.startswith(f"{top.rstrip('/')}/") for top in tops)


def state_of(path: str) -> str:
    """Identifies a file as it is now; empty if there is none."""
    try:
        info = os.lstat(path)
    except OSError:
        return ""
    return f"{info.st_ino}:{info.st_ctime_ns}"


def is_another(path: str, state: str) -> bool:
    """Whether there is something at `path` now that is not the file that had this state. A change of that file itself
    does not count: no tenant could make it."""
    now = state_of(path)
    if now in ("", state):
        return False
    number, _, changed = state.partition(":")
    if now.partition(":")[0] != number:
        return True
    from sandbox.guards.birth_time import born  # a new file may have the number of the one that was removed

    try:
        return born(path) > int(changed)
    except OSError:
        return False  # gone since


def content(path: str, most: int = MOST) -> bytes | None:
    """The beginning of a regular file; None for anything else. (Never waits: a tenant can put a pipe anywhere.)"""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(fd, most) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(fd)


def read_config(path: str) -> list[Entry] | None:
    """The settings in a file; None when it does not exist, is too large, or is not a configuration."""
    data = content(path, MOST + 1)
    try:
        return None if data is None else _parsed(data)
    except UnreadableConfig:
        return None


def _parsed(data: bytes) -> list[Entry]:
    """Parses, and keeps a few results: the person's own file is read at every start, and seldom changes."""
    if len(data) > SMALL:
        return parse(data)
    if data not in _kept:
        if len(_kept) >= 16:
            _kept.clear()
        _kept[data] = parse(data)
    return _kept[data]


_kept: dict[bytes, list[Entry]] = {}


def first_line(path: str) -> str:
    """The text of `commondir`, `gitdir` or a `.git` file, without the line end: git takes all of it for one path, up to
    a NUL."""
    return os.fsdecode(content(path, 8192) or b"").rstrip("\r\n").partition("\0")[0]


def has_nul(path: str) -> bool:
    """Whether there is a NUL in such a file: git never writes one."""
    return b"\0" in (content(path, 8192) or b"")


def text_of(path: str) -> str | None:
    """The text (latin-1) of a file that git keeps for itself, "" if there is none; None if it is too long."""
    data = content(path, MOST + 1) or b""
    return data.decode("latin-1") if len(data) <= MOST else None


def as_path(value: str, base: str) -> str:
    """A setting's value (latin-1) as a path; a relative one starts at `base`."""
    path = os.path.expanduser(os.fsdecode(value.encode("latin-1")))
    return os.path.normpath(os.path.join(base, path.removeprefix("%(prefix)/")))


def common_directory(repository: str) -> str:
    """Where the configuration and hooks of a repository's directory are."""
    said = first_line(f"{repository}/commondir")
    return os.path.normpath(os.path.join(repository, said)) if said else repository


def personal_files() -> list[str]:
    """The system's and the person's own configuration files, in the order in which git reads them."""
    chosen = os.environ.get("GIT_CONFIG_GLOBAL")
    home = os.path.expanduser("~")
    own = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return ["/etc/gitconfig", *([chosen] if chosen else [f"{own}/git/config", f"{home}/.gitconfig"])]
