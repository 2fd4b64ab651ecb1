"""Removes from a repository whatever a tenant put there that the host's git would run.

Nothing is destroyed: what is removed stays in the same directory, under a name that git does not read
(`config.from-sandbox`). Every step uses an open directory, so a link that appears meanwhile leads nowhere else.
"""

from __future__ import annotations

import errno
import os
import stat

from sandbox.guards.git_config import MOST, UnreadableConfig, digest, harmless, parse, written
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
GITDIR = "gitdir: "  # how a `.git` file begins
NOREPLACE, EXCHANGE = 1, 2  # of `renameat2`
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
            real = os.path.realpath(directory)
            if real != directory and beneath(real, self.roots):
                self.waiting.append(real)
            elif os.path.lexists(directory) and real == directory:
                self.tell(directory, "")
            return
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

    def settings(self, path: str, trusted: Collection[str]) -> None:
        """Takes out of a configuration that somebody replaced what is neither harmless nor among the digests
        `trusted`."""
        directory, name = os.path.split(path)
        self._around(path, lambda place: self._config(place, directory, name, trusted))

    def _config(self, place: int, directory: str, name: str, trusted: Collection[str] = ()) -> list[Entry]:
        try:
            info = os.lstat(name, dir_fd=place)
        except OSError:
            return []
        path = f"{directory}/{name}"
        entries: list[Entry] | None = None
        if stat.S_ISREG(info.st_mode):
            try:
                entries = parse(content(f"/proc/self/fd/{place}/{name}", MOST + 1) or b"")
            except UnreadableConfig:
                entries = None
        elif stat.S_ISDIR(info.st_mode):
            return []  # git cannot read it
        kept = [one for one in entries or () if harmless(one) or self._own_tree(one, directory)]
        if trusted:
            kept = [one for one in entries or () if one in kept or digest(one) in trusted]
        if entries is None or len(kept) != len(entries):
            self._replace(place, directory, name, written(kept) or EMPTY)
        elif info.st_nlink > 1 and not _write(place, name, content(path) or b""):
            self._aside(place, directory, name)  # it could be changed later through its other name
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
            real = os.path.realpath(directory)  # git follows links on the way to hooks
            if real != directory and beneath(real, self.roots):
                self.programs(real)
            elif os.path.lexists(directory):
                self.tell(directory, "")
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
        real = os.path.realpath(os.path.join(directory, first_line(f"{directory}/commondir")))  # `..` after a link
        if plain and target != directory and real == target and beneath(target, self.roots):
            self.waiting.append(target)
        else:
            self._aside(place, directory, "commondir")

    def git_file(self, path: str) -> None:
        """Checks a `.git` that is a file or a link: it may only name a repository in the project."""
        if not os.path.islink(path) and not first_line(path).startswith(GITDIR):
            return  # being written; git refuses it in this state
        target = leads_to(path)
        if target is not None and beneath(target, self.roots):
            self.waiting.append(target)
            return
        directory, name = os.path.split(path)
        self._around(path, lambda place: self._aside(place, directory, name))

    def rebase(self, directory: str, before: Collection[str]) -> None:
        """Removes commands from a trusted repository's rebase that were not there before."""

        def clean(place: int) -> None:
            self._linked(place, directory)
            self._todo(place, directory, before)

        self._around(f"{directory}/.", clean)
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
        directory, name = os.path.split(path)

        def move(place: int) -> None:
            if name == "config.worktree":  # of `git sparse-checkout`, perhaps on the host
                self._config(place, directory, name)
            elif os.path.lexists(f"/proc/self/fd/{place}/{name}"):
                self._aside(place, directory, name)

        self._around(path, move)

    def _around(self, path: str, work: Callable[[int], object]) -> None:
        """Calls `work` with the directory that `path` is in, opened."""
        try:
            place = open_in_place(os.path.dirname(path))
        except OSError:
            if os.path.lexists(path):
                self.tell(path, "")
            return
        try:
            work(place)
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
            if os.path.lexists(os.path.dirname(path)):
                self.tell(path, "")
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
        """Moves a file aside and puts `data` in its place, at once: whenever we are killed, git finds one of them."""
        try:
            _writable(place)
            fresh = _fresh(place, name, data)
            saved = _exchange(place, fresh, name)
        except OSError:
            self._aside(place, directory, name)
            _write(place, name, data)
        else:
            self.tell(f"{directory}/{name}", f"{directory}/{saved}")


def _write(place: int, name: str, data: bytes) -> bool:
    """Puts a new file at `name`. False if that failed; then what was there still is."""
    try:
        _writable(place)
        os.rename(_fresh(place, name, data), name, src_dir_fd=place, dst_dir_fd=place)
    except OSError:
        return False  # the disk is full
    return True


def _fresh(place: int, name: str, data: bytes) -> str:
    """Writes a file beside `name`, and returns what it is called. Raises OSError."""
    fresh = f".{name}{SAVED}-{os.urandom(8).hex()}"  # nobody inside can have taken it
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=place)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            if os.geteuid() == 0:
                owner = os.stat(place)
                os.fchown(fd, owner.st_uid, owner.st_gid)
    except OSError:
        os.unlink(fresh, dir_fd=place)  # the disk is full
        raise
    return fresh


def _exchange(place: int, fresh: str, name: str) -> str:
    """Puts `fresh` in the place of `name`, and returns what that is called now. Raises OSError, without `fresh`."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(place, os.fsencode(fresh), place, os.fsencode(name), EXCHANGE) != 0:
        problem = ctypes.get_errno()
        os.unlink(fresh, dir_fd=place)
        raise OSError(problem, os.strerror(problem), name)
    try:
        return _rename(place, fresh, name)
    except OSError:
        return fresh  # out of git's sight all the same


def take_link(path: str, tell: Tell) -> None:
    """Puts a file that says where a link led beside it, and removes the link: git could be made to write through it
    under any name."""
    directory, name = os.path.split(path)
    try:
        place = open_in_place(directory)
    except OSError:
        if os.path.lexists(path):
            tell(path, "")
        return
    try:
        _writable(place)
        fresh = _fresh(place, "link", os.fsencode(os.readlink(name, dir_fd=place)) + b"\n")
        os.unlink(name, dir_fd=place)
        saved = _rename(place, fresh, name)
    except OSError:
        tell(path, "")
    else:
        tell(path, f"{directory}/{saved}")
    finally:
        os.close(place)


def leads_to(path: str) -> str | None:
    """The repository that a `.git` file or link names; None if it names none, or if there is a link on that path."""
    if os.path.islink(path):
        spelled = os.readlink(path)
    else:
        said = first_line(path)
        if not said.startswith(GITDIR) or has_nul(path):
            return None
        spelled = said[len(GITDIR) :]  # with all its blanks
    spelled = os.path.join(os.path.dirname(path), spelled)
    target = os.path.normpath(spelled)
    return target if os.path.realpath(spelled) == target else None


def _rename(place: int, name: str, usual: str | None = None) -> str:
    """Gives a file another name, at which nothing is, and returns it. `usual`: what it was called. Raises OSError."""
    import ctypes  # seldom needed

    libc = ctypes.CDLL(None, use_errno=True)
    unknown = f"{SAVED}-{os.urandom(8).hex()}"  # nobody inside can have taken it
    usual = usual or name
    for saved in (f"{usual}{SAVED}", f"{usual}{unknown}", unknown):
        if libc.renameat2(place, os.fsencode(name), place, os.fsencode(saved), NOREPLACE) == 0:
            return saved
        problem = ctypes.get_errno()
        if problem in (errno.EINVAL, errno.ENOSYS):  # a file system that cannot refuse to overwrite
            os.rename(name, f"{usual}{unknown}", src_dir_fd=place, dst_dir_fd=place)
            return f"{usual}{unknown}"
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
