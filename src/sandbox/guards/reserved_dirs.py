"""Keeps tenants from *creating* files and directories that programs on the host act on.

Only what exists can be frozen. So in a git repository, which people open in editors, missing directories (`.vscode`,
`.claude`, …) are created, empty, for as long as the sandbox lives; those of agents only where the person has used the
agent. git does not see them, and `git clean -d` inside is configured to ignore them. An empty *file* would show up in
git and be committed. So files (`.mcp.json`, …), and everything in a directory that is no repository, are only looked
for at the end, and reported.

With `filesystem.show_host`, everything that srt refuses to create is reserved (`all_names`), including files and what
`deny_write` names: by an empty file on the host, which tenants see as a device that nobody can open.

Removing a directory also removes its mount in every other sandbox, so only the last sandbox that has reserved something
in a directory removes it. Locks on a file that no tenant can reach show which sandboxes use which directory.
"""

from __future__ import annotations

import fcntl
import os
import stat
from _functools import partial
from _struct import pack

from sandbox.config.home import home, unwritable
from sandbox.config.paths import is_beneath
from sandbox.guards.dot_entries import SHOWN
from sandbox.guards.git_marker import moved_path
from sandbox.policy.protected import AGENTS, RESERVED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Few, because each costs time at the start and at the end. `.sandbox` and `.uds` can only tighten, so tenants may
# create them.
DIRECTORIES = (".claude", ".cursor", ".idea", ".vscode", ".git/hooks")
FILES = (".mcp.json", ".envrc", ".gitmodules", ".git", ".sandbox", ".uds")
# With `show_host`. Parents first.
ALL_DIRECTORIES = (
    ".vscode", ".idea", ".cursor", ".claude", ".claude/commands", ".claude/agents", ".claude/skills", ".claude/hooks",
    ".claude/plugins",
)  # fmt: skip
ALL_FILES = (
    ".gitconfig", ".gitmodules", ".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile", ".ripgreprc",
    ".mcp.json", ".envrc", ".claude/settings.json", ".claude/settings.local.json",
)  # fmt: skip
# Only special in the home directory.
HOME_FILES = (".gitconfig", ".bashrc", ".bash_profile", ".bash_login", ".zshrc", ".zshenv", ".zprofile", ".profile")
ALL_HOME_FILES = (".bash_login", ".bash_logout", ".zshenv", ".zlogin", ".srt-settings.json")
MOST = 1000  # reported
_TURNS = 2**61  # the lock for making them, of the same directory


def all_names(root: str, trees: Sequence[str]) -> list[tuple[str, str, bool]]:
    """For `show_host`: what tenants must not make in the `trees` that they write to. Each path comes with the existing
    directory that it belongs to, and whether it is a directory.

    These are in the project, in the home directory, at the top of a tree that is a repository, and in a tree that is
    itself such a directory (`~/.claude`). Elsewhere such names come and go while programs work; they are reported at
    the end.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    found: dict[tuple[str, str, bool], None] = {}
    places = [(root, trees), (home, trees)]
    places += ((tree, trees) for tree in trees if os.path.lexists(f"{tree}/.git"))
    places += ((os.path.dirname(tree), [tree]) for tree in trees)
    for top, where in places:
        names = [(name, True) for name in ALL_DIRECTORIES] + [(name, False) for name in ALL_FILES]
        names += ((name, False) for name in (ALL_HOME_FILES if top == home else ()))
        for name, is_dir in names:
            path = f"{top}/{name}"
            if any(is_beneath(path, tree) and path != tree for tree in where):
                found[top, path, is_dir] = None
    return list(found)


class ReservedDirs:
    """The empty directories of one sandbox's project."""

    def __init__(
        self,
        root: str,
        *,
        more: Sequence[tuple[str, str, bool]] | None = None,
        places: Sequence[str] = (),
        only_places: bool = False,
    ) -> None:
        """Creates those that are missing. Where we cannot create one, a tenant cannot either.

        `more`: these paths instead, parents first, each with an existing directory that it belongs to and whether it is
        a directory. `places`: directories to mount something on, whatever the project is. `only_places`: only those,
        for an overlay project."""
        self._made: list[str] = []
        self._files: list[str] = []
        self._places: dict[str, set[int]] = {}  # what was made, and the numbers of the directories that it belongs to
        self._root = root
        self._lock = -1
        wanted = list(more or ())
        if more is None:
            usual = _usual() if os.path.lexists(f"{root}/.git") and not only_places else ()
            wanted = [(root, f"{root}/{name}", True) for name in dict.fromkeys((*usual, *places))]
        if wanted:
            try:
                self._make(wanted)
            except BaseException:
                self.remove()  # else its locks would hold up every later sandbox of the project
                raise
        is_home = root == os.path.realpath(os.path.expanduser("~"))
        names = FILES + (HOME_FILES if is_home else ())
        looked_for = (f"{root}/{name}" for name in (*names, *DIRECTORIES)) if not only_places else ()
        self._absent = [path for path in looked_for if not os.path.lexists(path)]
        # In the home directory, nearly everything that begins with a dot is a program's settings.
        self._dotted = set(_dotted(root)) if is_home else None

    def _make(self, wanted: Sequence[tuple[str, str, bool]]) -> None:
        try:
            os.makedirs(home(), 0o700, exist_ok=True)
            self._lock = os.open(f"{home()}/projects", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise unwritable(problem) from problem
        numbers = {top: os.stat(top).st_ino for top, _, _ in wanted}
        # One sandbox at a time makes them: what another one has half made would be taken for somebody's own, and not be
        # frozen here. In order, so that no two wait for each other.
        turns = [number + _TURNS for number in sorted(set(numbers.values()))]
        for turn in turns:
            fcntl.fcntl(self._lock, fcntl.F_OFD_SETLKW, self._range(fcntl.F_WRLCK, turn))
        shared = {top: not self._alone(number) for top, number in numbers.items()}
        for number in numbers.values():
            fcntl.fcntl(self._lock, fcntl.F_OFD_SETLKW, self._range(fcntl.F_RDLCK, number))
        for top, path, is_dir in wanted:
            self._places.setdefault(path, set()).add(numbers[top])
            self._reserve(path, shared[top], is_dir=is_dir)
        for turn in turns:
            fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, self._range(fcntl.F_UNLCK, turn))

    def _reserve(self, path: str, shared: bool, *, is_dir: bool) -> None:
        if os.path.islink(os.path.dirname(path)):
            return  # a tenant could use such a link to have us create a directory anywhere
        try:
            if is_dir:
                os.mkdir(path, 0o755)
            else:
                made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                os.fchmod(made, RESERVED)
                os.close(made)
        except OSError:
            if not (shared and (_empty(path) if is_dir else is_placeholder(path))):
                return
        (self._made if is_dir else self._files).append(path)

    @property
    def files(self) -> list[str]:
        """The empty files that keep tenants from making files of these names."""
        return self._files

    def names(self) -> list[str]:
        """Those in the project's own directory."""
        return [os.path.basename(path) for path in self._made if os.path.dirname(path) == self._root]

    def follow(self, old: str, new: str) -> None:
        """Looks for everything where it is now: `old`, a directory, has been renamed to `new`."""
        at = partial(moved_path, old, new)
        self._root = at(self._root)
        self._made = list(map(at, self._made))
        self._files = list(map(at, self._files))
        self._absent = list(map(at, self._absent))
        self._places = {at(path): numbers for path, numbers in self._places.items()}

    def remove(self) -> None:
        """Removes what was created here and is still empty. Idempotent."""
        if self._lock < 0:
            return
        alone = {number for number in set().union(*self._places.values()) if self._alone(number)}
        for path in self._files:
            try:
                if self._places[path] <= alone and is_placeholder(path):
                    os.unlink(path)
            except OSError:
                pass  # gone since
        for path in reversed(self._made):
            try:
                if self._places[path] <= alone:
                    os.rmdir(path)
            except OSError:
                pass  # somebody on the host uses it now
        os.close(self._lock)
        self._lock = -1

    def _alone(self, number: int) -> bool:
        """Whether no other sandbox is in this directory. None can enter while we hold this lock."""
        try:
            fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, self._range(fcntl.F_WRLCK, number))
        except OSError:
            return False
        return True

    def _range(self, kind: int, number: int) -> bytes:
        """The kernel's `struct flock` for one byte of the file: each directory has its own."""
        return pack("hhqqi4x", kind, os.SEEK_SET, number & (2**62 - 1), 1, 0)

    def appeared(self) -> list[str]:
        """Files that programs on the host act on and that somebody created since the start."""
        found = [path for path in self._absent if os.path.lexists(path)]
        if self._dotted is not None:
            ours = os.path.realpath(home())
            new = (f"{self._root}/{name}" for name in _dotted(self._root) if name not in self._dotted)
            found += [path for path in new if path not in found and path != ours]
        return found[:MOST]


def _usual() -> tuple[str, ...]:
    """The directories of a project that this person's programs act on. An agent that the person has used has a
    directory of the same name in the home, or under `~/.config` without the dot."""
    user = os.path.expanduser("~")
    agents = (name[:-1] for name in AGENTS if name.startswith(".") and name.find("/") == len(name) - 1)
    used = (name for name in agents if os.path.isdir(f"{user}/{name}") or os.path.isdir(f"{user}/.config/{name[1:]}"))
    return (*DIRECTORIES, *used)


def _dotted(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if name.startswith(".") and name not in SHOWN)
    except OSError:
        return []


def is_placeholder(path: str) -> bool:
    """Whether it is an empty file with our mark: made by us, or by a sandbox that is in the project too."""
    try:
        return is_reserved(os.lstat(path))
    except OSError:
        return False


def is_reserved(info: os.stat_result) -> bool:
    """Whether such a file only keeps tenants from making one."""
    return stat.S_ISREG(info.st_mode) and info.st_size == 0 and stat.S_IMODE(info.st_mode) == RESERVED


def _empty(path: str) -> bool:
    """Whether it is a directory with nothing in it: made, like ours, by a sandbox that is in the project too."""
    try:
        return not os.listdir(path)
    except OSError:
        return False
