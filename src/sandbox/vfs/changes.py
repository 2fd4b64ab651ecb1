"""What tenants changed in an overlay project: the kernel's upper layer compared with the host's files as they are now.

The upper layer is hostile: names, types, links and depth are a tenant's choice. It is walked by descriptors, nothing is
followed, nothing but regular files is opened. Deletions are character devices 0:0 or files with a mark, depending on
the kernel; a directory that hides the one beneath carries the mark `opaque`. Tenants cannot write either mark: the
kernel keeps its own names apart from theirs.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox.policy.files import protected_patterns
from sandbox.vfs.beneath import open_beneath, opened, reopen
from sandbox.vfs.provider import join

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_DEEP = 128
CHUNK = 1 << 20
_OBEYED = protected_patterns()
OPAQUE, WHITEOUT, ORIGIN = "user.overlay.opaque", "user.overlay.whiteout", "user.overlay.origin"


@dataclass(slots=True)
class State:
    """One side of a change."""

    kind: str
    """file, directory, link, fifo, socket or device"""
    mode: int
    size: int
    target: str | None = None
    identity: tuple[int, int] = (0, 0)
    """Inode and time of the last change: the same means untouched."""


@dataclass(slots=True)
class Change:
    """One path that differs. `kind`: added, modified, deleted, mode."""

    path: str
    """Relative to the project."""
    kind: str
    before: State | None
    after: State | None
    risk: str | None = None
    """Why it is not carried over unless it is named."""
    conflict: str | None = None
    """What happened to the host's side since the sandbox started."""
    impossible: str | None = None
    """Why it cannot be carried over at all."""
    notes: list[str] = field(default_factory=list)


def changes(upper: int, project: int) -> Iterator[Change]:
    """Compares the layer with the project, both open directories; parents come before what is in them."""
    yield from _Walk(upper, project).directory("/", 0)


def state_of(root: int, path: str) -> State | None:
    """What is at `path` below `root`, or None. A link on the way means that nothing of ours is there."""
    try:
        with opened(root, path) as fd:
            return _state(fd)
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV):
            return None
        raise


def open_regular(root: int, path: str) -> int:
    """A regular file below `root`, open for reading; OSError for anything else, which is never opened."""
    with opened(root, path) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return reopen(fd, os.O_RDONLY)


class _Walk:
    def __init__(self, upper: int, project: int) -> None:
        self._upper = upper
        self._project = project

    def directory(self, path: str, depth: int, *, hides: bool = False) -> Iterator[Change]:
        fd = open_beneath(self._upper, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = sorted(os.listdir(fd))
            hides = hides or _marked(fd, OPAQUE)
        finally:
            os.close(fd)
        if hides:
            yield from self._hidden(path, set(names))
        for name in names:
            yield from self._entry(join(path, name), depth, hides)

    def _hidden(self, path: str, kept: set[str]) -> Iterator[Change]:
        try:
            fd = open_beneath(self._project, path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return
        try:
            gone = sorted(set(os.listdir(fd)) - kept)
        finally:
            os.close(fd)
        for name in gone:
            yield from self._deleted(join(path, name))

    def _entry(self, path: str, depth: int, hides: bool) -> Iterator[Change]:
        with opened(self._upper, path) as fd:
            told = os.fstat(fd)
            if _is_whiteout(fd, told):
                yield from self._deleted(path)
                return
            after = _state(fd)
            copied = stat.S_ISREG(told.st_mode) and _marked(fd, ORIGIN)
        before = state_of(self._project, path)
        if before is not None and before.kind != after.kind:
            yield from self._deleted(path)
            before = None
        change = self._compared(path, before, after)
        if change is not None:
            if before is None and copied:
                change.conflict = "the file was removed on the host"
            yield _judged(change)
        if after.kind == "directory":
            if depth >= MOST_DEEP:
                yield Change(path[1:], "added", None, after, impossible="lies too deep")
            elif after.mode & 0o500 != 0o500 and os.geteuid() != 0:
                yield Change(path[1:], "mode", before, after, impossible="cannot be looked into (its mode forbids it)")
            else:
                yield from self.directory(path, depth + 1, hides=hides)

    def _deleted(self, path: str) -> Iterator[Change]:
        before = state_of(self._project, path)
        if before is not None:
            yield _judged(Change(path[1:], "deleted", before, None))

    def _compared(self, path: str, before: State | None, after: State) -> Change | None:
        if before is None:
            return Change(path[1:], "added", None, after)
        if after.kind == "link":
            same = before.target == after.target
        else:
            same = after.kind != "file" or self._same_content(path, before, after)
        if not same:
            return Change(path[1:], "modified", before, after)
        if after.kind != "link" and before.mode & 0o777 != after.mode & 0o777:
            return Change(path[1:], "mode", before, after)
        return None

    def _same_content(self, path: str, before: State, after: State) -> bool:
        if before.size != after.size:
            return False
        try:
            ours, theirs = open_regular(self._project, path), open_regular(self._upper, path)
        except OSError:
            return False
        with open(ours, "rb", buffering=0) as one, open(theirs, "rb", buffering=0) as other:
            while data := one.read(CHUNK):
                if data != other.read(CHUNK):
                    return False
        return True


_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


def _state(fd: int) -> State:
    told = os.fstat(fd)
    kind = _KINDS.get(stat.S_IFMT(told.st_mode), "device")
    target = os.readlink("", dir_fd=fd) if kind == "link" else None
    return State(kind, stat.S_IMODE(told.st_mode), told.st_size, target, (told.st_ino, told.st_ctime_ns))


def _is_whiteout(fd: int, told: os.stat_result) -> bool:
    if stat.S_ISCHR(told.st_mode):
        return told.st_rdev == 0
    return stat.S_ISREG(told.st_mode) and told.st_size == 0 and _marked(fd, WHITEOUT)


def _marked(fd: int, name: str) -> bool:
    try:
        os.getxattr(f"/proc/self/fd/{fd}", name)
    except OSError:
        return False
    return True


def _judged(change: Change) -> Change:
    """Adds what a reviewer must know."""
    after = change.after
    if _is_obeyed(change.path):
        change.risk = "tools on the host obey this file"
    if after is None:
        return change
    if after.kind in ("fifo", "socket", "device"):
        change.impossible = f"is a {after.kind}"
    if after.kind == "link" and after.target is not None and _leads_out(change.path, after.target):
        change.risk = "the link leads out of the project"
    if after.mode & (stat.S_ISUID | stat.S_ISGID) and after.kind == "file":
        change.notes.append("setuid and setgid are not carried over")
    return change


def _is_obeyed(path: str) -> bool:
    """Whether it, or a directory that it lies in, is what no tenant may write: the host runs or obeys it later."""
    parts = path.split("/")
    return any(_OBEYED.match("/".join(parts[:end]), True) for end in range(1, len(parts) + 1))


def _leads_out(path: str, target: str) -> bool:
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return target.startswith("/") or resolved == ".." or resolved.startswith("../")
