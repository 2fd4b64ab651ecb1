"""Keeps tenants from *creating* files and directories that programs on the host act on.

Only what exists can be frozen. So in a git repository, which people open in editors, missing directories (`.vscode`,
`.claude`, …) are created, empty, for as long as the sandbox lives. git does not see them, and `git clean -d` inside is
configured to ignore them. An empty *file* would show up in git and be committed. So files (`.mcp.json`, …), and
everything in a directory that is no repository, are only looked for at the end, and reported.

With `filesystem.show_host`, everything that srt refuses to create is reserved, including files and what `deny_write`
names: by an empty file on the host, which tenants see as a device that nobody can open.

Removing a directory also removes its mount in every other sandbox, so the last sandbox in a project does it. Locks on a
file that no tenant can reach show which sandboxes are in a project.
"""

from __future__ import annotations

import fcntl
import os
import stat
from struct import pack

from sandbox.config.home import home
from sandbox.errors import SandboxError
from sandbox.guards.dot_entries import SHOWN

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
)  # fmt: skip
ALL_FILES = (
    ".gitconfig", ".gitmodules", ".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile", ".ripgreprc",
    ".mcp.json", ".envrc", ".claude/settings.json", ".claude/settings.local.json",
)  # fmt: skip
# Only special in the home directory.
HOME_FILES = (".gitconfig", ".bashrc", ".bash_profile", ".bash_login", ".zshrc", ".zshenv", ".zprofile", ".profile")
MOST = 1000  # reported
# The mode of an empty file of ours. The person may write it, and then it is theirs; the sticky bit, which means nothing
# for a file, tells that nobody has.
RESERVED = 0o1644


class ReservedDirs:
    """The empty directories of one sandbox's project."""

    def __init__(
        self,
        root: str,
        *,
        all_names: bool = False,
        more: Sequence[str] = (),
        places: Sequence[str] = (),
        only_places: bool = False,
    ) -> None:
        """Creates those that are missing. Where we cannot create one, a tenant cannot either.

        `all_names`: all that srt reserves in the project; `more`: further paths, of files; `places`: directories that
        something is mounted on, whatever the project is; `only_places`: nothing else, for an overlay project."""
        self._made: list[str] = []
        self._files: list[str] = []
        self._root = root
        self._lock, self._number = -1, os.stat(root).st_ino
        try:
            os.makedirs(home(), 0o700, exist_ok=True)
            self._lock = os.open(f"{home()}/projects", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise SandboxError(
                "cannot write {home}: {reason}; set SANDBOX_HOME to a directory you can write to",
                home=home(),
                reason=problem.strerror,
            ) from problem
        shared = not self._alone()
        fcntl.fcntl(self._lock, fcntl.F_OFD_SETLKW, self._range(fcntl.F_RDLCK))
        is_home = root == os.path.realpath(os.path.expanduser("~"))
        names = FILES + (HOME_FILES if is_home else ())
        in_repository = os.path.lexists(f"{root}/.git") and not only_places
        directories = ALL_DIRECTORIES if all_names else DIRECTORIES if in_repository else ()
        for path in (f"{root}/{name}" for name in dict.fromkeys((*directories, *places))):
            self._reserve(path, shared, is_dir=True)
        for path in (*(f"{root}/{name}" for name in (ALL_FILES if all_names else ())), *more):
            self._reserve(path, shared, is_dir=False)
        looked_for = (f"{root}/{name}" for name in (*names, *DIRECTORIES)) if not only_places else ()
        self._absent = [path for path in looked_for if not os.path.lexists(path)]
        # In the home directory, nearly everything that begins with a dot is a program's settings.
        self._dotted = set(_dotted(root)) if is_home else None

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
            if not (shared and (_empty(path) if is_dir else _empty_file(path))):
                return
        (self._made if is_dir else self._files).append(path)

    @property
    def files(self) -> list[str]:
        """The empty files that stand where tenants must not make any."""
        return self._files

    def names(self) -> list[str]:
        """Those in the project's own directory."""
        return [os.path.basename(path) for path in self._made if os.path.dirname(path) == self._root]

    def remove(self) -> None:
        """Removes what was created here and is still empty. Idempotent."""
        if self._lock < 0:
            return
        alone = self._alone()
        for path in self._files if alone else ():
            try:
                if _empty_file(path):
                    os.unlink(path)
            except OSError:
                pass  # gone since
        for path in reversed(self._made) if alone else ():
            try:
                os.rmdir(path)
            except OSError:
                pass  # somebody on the host uses it now
        os.close(self._lock)
        self._lock = -1

    def _alone(self) -> bool:
        """Whether no other sandbox is in this project. None can enter while we hold this lock."""
        try:
            fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, self._range(fcntl.F_WRLCK))
        except OSError:
            return False
        return True

    def _range(self, kind: int) -> bytes:
        """The kernel's `struct flock` for one byte of the file: each project has its own."""
        return pack("hhqqi4x", kind, os.SEEK_SET, self._number & (2**62 - 1), 1, 0)

    def appeared(self) -> list[str]:
        """Files that programs on the host act on and that somebody created since the start."""
        found = [path for path in self._absent if os.path.lexists(path)]
        if self._dotted is not None:
            ours = os.path.realpath(home())
            new = (f"{self._root}/{name}" for name in _dotted(self._root) if name not in self._dotted)
            found += [path for path in new if path not in found and path != ours]
        return found[:MOST]


def _dotted(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if name.startswith(".") and name not in SHOWN)
    except OSError:
        return []


def _empty_file(path: str) -> bool:
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
