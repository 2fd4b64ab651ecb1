"""What tenants changed in an overlay project: the kernel's upper layer compared with the host's files as they are now.

The upper layer is hostile: a tenant chooses names, types, links and depth. It is walked by descriptors, no link is
followed, and only regular files are opened. A deletion is a character device 0:0 or a file with a special attribute,
depending on the kernel. A directory that hides the one below has the attribute `opaque`; what was copied up from the
host's files has the attribute `origin`, also after a rename. Tenants cannot set these attributes. In a user namespace
the kernel neither redirects directories (renaming one that exists below is EXDEV, and programs copy instead) nor copies
up metadata without content; a layer with those attributes is refused.
"""

from __future__ import annotations

import os
import posixpath
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox.policy.protected import RESERVED, RESERVED_DIRECTORY, protected_patterns
from sandbox.vfs.file_state import MOST_LONG, UNSEEN, FileState, names_in, open_regular, state, state_of
from sandbox.vfs.open_beneath import opened
from sandbox.vfs.provider import join, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK = 1 << 20
_OBEYED = protected_patterns()
OPAQUE, WHITEOUT, ORIGIN = "user.overlay.opaque", "user.overlay.whiteout", "user.overlay.origin"
REDIRECT, METACOPY = "user.overlay.redirect", "user.overlay.metacopy"
CLOSED = "cannot be looked into (its mode forbids it)"


@dataclass(slots=True)
class Change:
    """One path that differs. `kind`: added, modified, deleted, mode."""

    path: str
    """Relative to the project."""
    kind: str
    before: FileState | None
    after: FileState | None
    risk: str | None = None
    """Why it is not carried over unless it is named."""
    conflict: str | None = None
    """What happened to the host's side since the sandbox started."""
    impossible: str | None = None
    """Why it cannot be carried over at all."""
    notes: list[str] = field(default_factory=list)
    source: str | None = None
    """Where on the host the file was that it was moved or copied from, if that is known."""
    from_host: bool = False
    """Whether the kernel brought it up from some file of the host, perhaps one of another name."""
    discarded: bool = False
    """Whether somebody has decided against it, as it is now."""


@dataclass(slots=True)
class LayerChanges:
    """Everything that a walk found."""

    changes: list[Change] = field(default_factory=list)
    links: dict[int, list[str]] = field(default_factory=dict)
    """The names, changed or not, of each file of the layer that has several, by its inode."""
    moved_in: set[str] = field(default_factory=set)
    """Files from the host in a directory that the host never had: they were certainly moved there."""


def walk(upper: int, project: int, closed: UnreadableFiles) -> LayerChanges:
    """Compares the layer with the project, both open directories; parents come before what is in them."""
    layer = LayerChanges()
    layer.changes.extend(_Walk(upper, project, closed, layer).all())
    _join_links(layer, project)
    return layer


class UnreadableFiles:
    """Files that a tenant has made unreadable for their owner. They stay so while the sandbox runs. After its end they
    are made readable, and `open_up` is called with the path and the mode that the tenant set."""

    def __init__(self, modes: dict[str, int], open_up: Callable[[str, int], None] | None) -> None:
        self._modes = modes
        self._open_up = open_up
        self._opened: dict[int, int] = {}  # the same by inode: a file may have several names

    def look(self, path: str, fd: int, found: FileState) -> bool:
        """Whether it can be read now. Sets `found.mode` to the mode that the tenant set."""
        inode, now = found.identity[0], found.mode
        known = path in self._modes or inode in self._opened
        if known:
            found.mode = self._opened[inode] = self._opened.get(inode, self._modes.get(path, now))
        wanted = {"directory": 0o500, "file": 0o400}.get(found.kind, 0)
        if now & wanted == wanted or os.geteuid() == 0:
            return True
        if self._open_up is None or os.fstat(fd).st_uid != os.geteuid():
            return False
        if not known:  # else we were killed after noting it
            self._open_up(path, now)
            self._modes[path] = self._opened[inode] = now
        os.chmod(f"/proc/self/fd/{fd}", now | wanted)
        found.identity = inode, os.fstat(fd).st_ctime_ns
        return True


@dataclass(slots=True)
class _Directory:
    """A directory that is still to be walked."""

    path: str
    hides: bool = False  # nothing of the host's directory shows through
    obeyed: bool = False
    merged: bool = True  # the host had one here


class _Walk:
    def __init__(self, upper: int, project: int, closed: UnreadableFiles, layer: LayerChanges) -> None:
        self._upper = upper
        self._project = project
        self._closed = closed
        self._layer = layer
        self._waiting = [_Directory("/")]

    def all(self) -> Iterator[Change]:
        # With a list instead of recursion: a tenant chooses how deep the tree is.
        while self._waiting:
            directory = self._waiting.pop()
            found: list[_Directory] = []
            with opened(self._upper, directory.path, os.O_RDONLY | os.O_DIRECTORY) as fd:
                names = sorted(os.listdir(fd))
                directory.hides = directory.hides or _marked(fd, OPAQUE)
            if directory.hides:
                yield from self._hidden(directory, set(names))
            for name in names:
                yield from self._entry(directory, join(directory.path, name), found)
            self._waiting += reversed(found)

    def _hidden(self, directory: _Directory, kept: set[str]) -> Iterator[Change]:
        try:
            gone = sorted(set(names_in(self._project, directory.path)) - kept)
        except OSError:
            return
        for name in gone:
            yield from self._deleted(directory, join(directory.path, name))

    def _entry(self, directory: _Directory, path: str, found: list[_Directory]) -> Iterator[Change]:
        with opened(self._upper, path) as fd:
            if _is_whiteout(fd, told := os.fstat(fd)):
                yield from self._deleted(directory, path)
                return
            if _is_reserved(told):
                return
            after = state(fd)
            readable = self._closed.look(path, fd, after)
            copied = _marked(fd, ORIGIN)
            partial = _marked(fd, REDIRECT) or _marked(fd, METACOPY)
        obeyed = directory.obeyed or _is_obeyed(path)
        before = state_of(self._project, path)
        if before is not None and before.kind in UNSEEN:
            if after.kind != "directory":
                yield Change(path[1:], "added", None, after, impossible=UNSEEN[before.kind], from_host=copied)
                return
            before = after  # not known; what is in it is reported, with the reason
        if before is not None and before.kind != after.kind:
            yield from self._deleted(directory, path)
            before = None
        change = self._compared(path, before, after)
        if after.kind == "directory":
            stuck = self._cannot_enter(path, readable, partial)
            if stuck is None:
                found.append(_Directory(path, directory.hides, obeyed, copied))
            else:
                change = change or Change(path[1:], "mode", before, after)
                change.impossible, change.from_host = stuck, True
        elif partial or not readable:
            change = Change(path[1:], "modified" if before else "added", before, after, from_host=True)
            change.impossible = "is kept in part only" if partial else CLOSED
        if after.kind == "file" and after.names > 1:
            self._layer.links.setdefault(after.identity[0], []).append(path[1:])
        if change is None:
            return
        change.from_host = change.from_host or (copied and after.kind == "file")
        if change.from_host and not directory.merged:
            self._layer.moved_in.add(change.path)
        yield _judged(change, obeyed)

    def _cannot_enter(self, path: str, readable: bool, partial: bool) -> str | None:
        if partial:
            return "is kept in part only"
        if len(path) > MOST_LONG:
            return "lies too deep"
        return None if readable else CLOSED

    def _deleted(self, directory: _Directory, path: str) -> Iterator[Change]:
        before = state_of(self._project, path)
        if before is None:
            return
        change = Change(path[1:], "deleted", before, None, impossible=UNSEEN.get(before.kind))
        yield _judged(change, directory.obeyed or _is_obeyed(path))

    def _compared(self, path: str, before: FileState | None, after: FileState) -> Change | None:
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

    def _same_content(self, path: str, before: FileState, after: FileState) -> bool:
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


def _join_links(layer: LayerChanges, project: int) -> None:
    """Two hard links to one file are a change even if the host has two files with the same content."""
    changed = {change.path for change in layer.changes}
    for names in layer.links.values():
        same = [(name, found) for name in names if name not in changed and (found := state_of(project, "/" + name))]
        for name, found in same[1:]:
            if found.identity[0] != same[0][1].identity[0]:
                change = Change(name, "modified", found, found, notes=[f"becomes a hard link to {same[0][0]}"])
                layer.changes.append(_judged(change, any(_is_obeyed("/" + one) for one in _above(name))))


def _above(path: str) -> Iterator[str]:
    while path:
        yield path
        path = split("/" + path)[0][1:]


def _is_whiteout(fd: int, told: os.stat_result) -> bool:
    if stat.S_ISCHR(told.st_mode):
        return told.st_rdev == 0
    return stat.S_ISREG(told.st_mode) and told.st_size == 0 and _marked(fd, WHITEOUT)


def _is_reserved(told: os.stat_result) -> bool:
    """Whether it is an empty file or directory that hides a blocked one of the host."""
    if stat.S_ISDIR(told.st_mode):
        return stat.S_IMODE(told.st_mode) == RESERVED_DIRECTORY
    return stat.S_ISREG(told.st_mode) and told.st_size == 0 and stat.S_IMODE(told.st_mode) == RESERVED


def _marked(fd: int, name: str) -> bool:
    try:
        os.getxattr(f"/proc/self/fd/{fd}", name)
    except OSError:
        return False
    return True


def _judged(change: Change, obeyed: bool) -> Change:
    """Adds what a reviewer should know."""
    after = change.after
    if obeyed:
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
    """Whether the path is protected because the host runs or obeys it later. So is everything below it."""
    return _OBEYED.match(path[1:], True) is not None


def _leads_out(path: str, target: str) -> bool:
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return target.startswith("/") or resolved == ".." or resolved.startswith("../")
