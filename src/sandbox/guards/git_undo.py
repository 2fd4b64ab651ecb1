"""Removes from a repository whatever a tenant put there that the host's git would run.

Nothing is destroyed: what is removed stays in the same directory, under a name that git does not read
(`config.from-sandbox`). Every step uses an open directory, so a link that appears meanwhile leads nowhere else.
"""

from __future__ import annotations

import errno
import os
import stat

from sandbox.guards.git_config import MOST, Unreadable, harmless, parse, written
from sandbox.guards.git_directories import (
    CONFIGS,
    OPTIONS,
    REBASE_STEPS,
    UNDER_WAY,
    beneath,
    common_directory,
    content,
    first_line,
    has_nul,
    text_of,
)
from sandbox.guards.git_examination import is_command, runs_a_path, work_trees
from sandbox.guards.git_index import indexes, leads_astray
from sandbox.guards.nofollow import O_PATH, open_in_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sandbox.guards.git_config import Entry

    Tell = Callable[[str, str], object]  # path, and its new name; "" when it could not be undone

SAVED = ".from-sandbox"
NOREPLACE = 1  # of `renameat2`
EMPTY = b"[core]\n\trepositoryformatversion = 0\n"


class Neutralise:
    """Makes repositories harmless. Adds to `waiting` the further repositories that the caller has to check."""

    def __init__(self, roots: Sequence[str], tell: Tell, personal: Sequence[Entry] = ()) -> None:
        self.roots = roots
        self.tell = tell
        # A relative path in the person's own settings applies to every repository.
        self.hooks = [value for name, value in personal if name == "core.hookspath" and value]
        self.waiting: list[str] = []  # repositories that were named by files which we left alone
        self.last = False  # whether the tenants are gone: an index is long, and they may change it until then

    def repository(self, directory: str) -> None:
        """Moves aside everything in one repository that is not harmless."""
        try:
            place = open_in_place(directory)
        except OSError:
            return  # it has gone, or is another user's
        try:
            entries: list[Entry] = []
            for name in CONFIGS:
                entries += self._config(place, directory, name)
            self._hooks(place, directory, entries)
            self._common(place, directory)
            self._linked(place, directory)
            self._todo(place, directory, ())
            self._strategy(directory)
        finally:
            os.close(place)
        for name in indexes(directory) if self.last else ():
            self.index(directory, name)

    def index(self, directory: str, name: str) -> None:
        """Moves aside an index that would make git write outside its work tree."""
        if leads_astray(f"{directory}/{name}", f"{common_directory(directory)}/config"):
            self.aside(f"{directory}/{name}")

    def _strategy(self, directory: str) -> None:
        """Moves aside the merge strategy of an unfinished rebase or cherry-pick if it is a program in the work tree."""
        for name in OPTIONS:
            if runs_a_path(f"{directory}/{name}"):
                self.aside(f"{directory}/{name}")

    def _config(self, place: int, directory: str, name: str) -> list[Entry]:
        try:
            info = os.lstat(name, dir_fd=place)
        except OSError:
            return []
        path = f"{directory}/{name}"
        entries: list[Entry] | None = None
        if stat.S_ISREG(info.st_mode):
            try:
                entries = parse(content(f"/proc/self/fd/{place}/{name}", MOST + 1) or b"")
            except Unreadable:
                entries = None
        elif stat.S_ISDIR(info.st_mode):
            return []  # git cannot read it
        kept = [one for one in entries or () if harmless(one) or self._own_tree(one, directory)]
        if entries is None or len(kept) != len(entries):
            self._replace(place, directory, name, written(kept) or EMPTY)
        elif info.st_nlink > 1:  # it could be changed later through its other name
            self._write(place, name, content(path) or b"")
        return kept

    def _own_tree(self, entry: Entry, directory: str) -> bool:
        """Whether it is a submodule's `core.worktree`: a directory of the project whose `.git` points back here."""
        name, value = entry
        if name != "core.worktree" or not value:
            return False
        (tree,) = work_trees(directory, [entry])[-1:]
        if os.path.realpath(tree) != tree or not beneath(tree, self.roots):
            return False
        return leads_to(f"{tree}/.git") == directory

    def _hooks(self, place: int, directory: str, entries: list[Entry]) -> None:
        try:
            info = os.lstat("hooks", dir_fd=place)
        except OSError:
            pass
        else:
            if stat.S_ISDIR(info.st_mode):
                self.programs(f"{directory}/hooks")
            else:
                self._aside(place, directory, "hooks")
        for value in self.hooks:
            if not value.startswith(("/", "~")):
                for tree in work_trees(directory, entries):
                    self.programs(os.path.normpath(f"{tree}/{value}"))

    def programs(self, directory: str) -> None:
        """Moves aside every hook in a directory where git looks for hooks."""
        try:
            place = open_in_place(directory)
        except OSError:
            return
        try:
            with os.scandir(f"/proc/self/fd/{place}") as entries:
                names = [one.name for one in entries if not one.name.endswith(".sample") and SAVED not in one.name]
            for name in names:
                if not stat.S_ISDIR(os.lstat(name, dir_fd=place).st_mode):
                    self._aside(place, directory, name)
        except OSError:
            self.tell(directory, "")
        finally:
            os.close(place)

    def _common(self, place: int, directory: str) -> None:
        """Moves `commondir` aside unless it names a repository of the project by a path without links. That repository
        is checked too."""
        try:
            info = os.lstat("commondir", dir_fd=place)
        except OSError:
            return
        if stat.S_ISREG(info.st_mode) and info.st_size == 0:
            return  # being written; git refuses an empty one
        target = common_directory(directory)
        plain = stat.S_ISREG(info.st_mode) and not has_nul(f"{directory}/commondir")
        if plain and target != directory and os.path.realpath(target) == target and beneath(target, self.roots):
            self.waiting.append(target)
        else:
            self._aside(place, directory, "commondir")

    def git_file(self, path: str) -> None:
        """Checks a `.git` that is a file or a link: it may only name a repository in the project."""
        if not os.path.islink(path) and not first_line(path).startswith("gitdir:"):
            return  # being written; git refuses it in this state
        target = leads_to(path)
        if target is not None and beneath(target, self.roots):
            self.waiting.append(target)
            return
        try:
            place = open_in_place(os.path.dirname(path))
        except OSError:
            return
        try:
            self._aside(place, os.path.dirname(path), os.path.basename(path))
        finally:
            os.close(place)

    def rebase(self, directory: str, before: Collection[str]) -> None:
        """Removes commands from a trusted repository's rebase that were not there before."""
        try:
            place = open_in_place(directory)
        except OSError:
            if os.path.lexists(directory):
                self.tell(directory, "")
            return
        try:
            self._linked(place, directory)
            self._todo(place, directory, before)
        finally:
            os.close(place)
        self._strategy(directory)

    def _linked(self, place: int, directory: str) -> None:
        """Moves aside links where git has directories of its own: what they lead to can be exchanged later."""
        for name in UNDER_WAY:
            if os.path.islink(f"/proc/self/fd/{place}/{name}"):
                self._aside(place, directory, name)

    def _todo(self, place: int, directory: str, before: Collection[str]) -> None:
        text = text_of(f"/proc/self/fd/{place}/{REBASE_STEPS}")
        lines = (text or "").split("\n")
        kept = [line for line in lines if not is_command(line) or line in before]
        if text is not None and len(kept) == len(lines):
            return
        inner, name = REBASE_STEPS.split("/")
        below = os.open(inner, O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
        try:
            if text is None:
                self._aside(below, f"{directory}/{inner}", name)
            else:
                self._replace(below, f"{directory}/{inner}", name, "\n".join(kept).encode("latin-1"))
        finally:
            os.close(below)

    def aside(self, path: str) -> None:
        """Moves aside whatever is at a path where nothing may be, except for harmless settings."""
        try:
            place = open_in_place(os.path.dirname(path))
        except OSError:
            if os.path.lexists(path):
                self.tell(path, "")
            return
        try:
            if os.path.basename(path) == "config.worktree":  # of `git sparse-checkout`, perhaps on the host
                self._config(place, os.path.dirname(path), "config.worktree")
            elif os.path.lexists(f"/proc/self/fd/{place}/{os.path.basename(path)}"):
                self._aside(place, os.path.dirname(path), os.path.basename(path))
        finally:
            os.close(place)

    def relink(self, path: str, target: str) -> None:
        """Restores a link that pointed to something trusted."""
        try:
            if os.readlink(path) == target:
                return
        except OSError:
            pass
        self.aside(path)
        try:
            place = open_in_place(os.path.dirname(path))
        except OSError:
            return
        try:
            os.symlink(target, os.path.basename(path), dir_fd=place)
        except OSError:
            self.tell(path, "")
        finally:
            os.close(place)

    def _aside(self, place: int, directory: str, name: str) -> None:
        try:
            _writable(place)
            saved = _rename(place, name)
        except OSError:
            self.tell(f"{directory}/{name}", "")
            return
        self.tell(f"{directory}/{name}", f"{directory}/{saved}")

    def _replace(self, place: int, directory: str, name: str, data: bytes) -> None:
        self._aside(place, directory, name)
        self._write(place, name, data)

    def _write(self, place: int, name: str, data: bytes) -> None:
        fresh = f".{name}{SAVED}-{os.getpid()}"
        try:
            _writable(place)
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=place)
            with open(fd, "wb") as file:
                file.write(data)
                if os.geteuid() == 0:
                    owner = os.stat(place)
                    os.fchown(fd, owner.st_uid, owner.st_gid)
            os.rename(fresh, name, src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            pass  # git works without it


def leads_to(path: str) -> str | None:
    """The repository that a `.git` file or link names; None if it names none, or if there is a link on that path."""
    if os.path.islink(path):
        target = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    else:
        said = first_line(path)
        if not said.startswith("gitdir:") or has_nul(path):
            return None
        target = os.path.normpath(os.path.join(os.path.dirname(path), said[7:].strip()))
    return target if os.path.realpath(target) == target else None


def _rename(place: int, name: str) -> str:
    """Gives a file another name, at which nothing is, and returns it. Raises OSError."""
    import ctypes  # seldom needed

    libc = ctypes.CDLL(None, use_errno=True)
    unknown = f"{SAVED}-{os.urandom(8).hex()}"  # nobody inside can have taken it
    for saved in (f"{name}{SAVED}", f"{name}{unknown}", unknown):
        if libc.renameat2(place, os.fsencode(name), place, os.fsencode(saved), NOREPLACE) == 0:
            return saved
        problem = ctypes.get_errno()
        if problem in (errno.EINVAL, errno.ENOSYS):  # a file system that cannot refuse to overwrite
            os.rename(name, f"{name}{unknown}", src_dir_fd=place, dst_dir_fd=place)
            return f"{name}{unknown}"
        if problem not in (errno.EEXIST, errno.ENAMETOOLONG):
            break
    raise OSError(problem, os.strerror(problem), name)


def _writable(place: int) -> None:
    """Makes the directory writable for us: a tenant may have changed its mode."""
    mode = stat.S_IMODE(os.stat(place).st_mode)
    if mode & 0o700 != 0o700:
        try:
            os.chmod(f"/proc/self/fd/{place}", mode | 0o700)
        except OSError:
            pass
