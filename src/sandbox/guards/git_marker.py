"""Marker files: what the host's git trusted in a tree before any tenant could write to it. They are outside the tree.

Several sandboxes can share a tree. The first writes down what it finds. The others use that, because what they find
may already be the work of the first one's tenants. The last marks the file as ended. A file that no sandbox holds and
that is not marked as ended means that the sandboxes were killed, and tells the next one what to undo.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from _functools import partial

from sandbox.guards.git_directories import TrustedGit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


OLD = 30 * 86400  # seconds
ENDED = b"-"  # the first byte of a marker that ended in order


class Baseline:
    """What was there: repositories by path, with device and inode, and everything that belongs to them."""

    __slots__ = ("root", "since", "clock", "repositories", "git_files", "links", "trusted", "protected")

    def __init__(self, root: str) -> None:
        self.root = root
        self.since = 0  # ns: when tenants began to write there
        self.clock = 0.0  # the difference between the clock that can be set and the one that cannot, then
        self.repositories: dict[str, str] = {}  # path -> its identity
        self.git_files: dict[str, None] = {}  # `.git` files and links
        self.links: dict[str, str] = {}  # symbolic links in repositories, and their targets
        self.protected: dict[str, None] = {}  # what programs on the host act on
        self.trusted = TrustedGit()

    def moved(self, root: str) -> Baseline:
        """The same tree at another path."""
        made = Baseline(root)
        made.since, made.clock = self.since, self.clock
        new = partial(moved_path, self.root, root)
        made.repositories = {new(path): identity for path, identity in self.repositories.items()}
        made.git_files = dict.fromkeys(map(new, self.git_files))
        made.links = {new(path): target for path, target in self.links.items()}
        made.protected = dict.fromkeys(map(new, self.protected))
        made.trusted.absent = dict.fromkeys(map(new, self.trusted.absent))
        made.trusted.links = {new(path): target for path, target in self.trusted.links.items()}
        made.trusted.configs = {new(path): state for path, state in self.trusted.configs.items()}
        made.trusted.commands, made.trusted.settings = self.trusted.commands, self.trusted.settings
        return made

    def encode(self) -> bytes:
        trusted = self.trusted
        records = [
            ("R", self.root),
            ("W", str(self.since), str(self.clock)),
            *(("G", *one) for one in self.repositories.items()),
        ]
        records += [("F", path) for path in self.git_files] + [("A", path) for path in trusted.absent]
        records += [("L", *one) for one in trusted.links.items()] + [("C", line) for line in trusted.commands]
        records += [("P", path) for path in self.protected] + [("S", *one) for one in self.links.items()]
        records += [("T", *one) for one in trusted.configs.items()] + [("D", digest) for digest in trusted.settings]
        return b"".join(b"\0".join(map(os.fsencode, one)) + b"\0\0" for one in records)

    @classmethod
    def decode(cls, data: bytes) -> Baseline | None:
        """None for a marker that ended, and for one that a crash of the machine left unreadable."""
        try:
            return None if data.startswith(ENDED) else cls._decoded(data)
        except (ValueError, LookupError):
            return None

    @classmethod
    def _decoded(cls, data: bytes) -> Baseline | None:
        made = cls("")
        for record in data.split(b"\0\0")[:-1]:
            kind, first, *rest = map(os.fsdecode, record.split(b"\0"))
            if kind == "R":
                made.root = first
            elif kind == "W":
                made.since, made.clock = int(first), float(rest[0])
            elif kind == "G":
                made.repositories[first] = rest[0]
            elif kind == "L":
                made.trusted.links[first] = rest[0]
            elif kind == "S":
                made.links[first] = rest[0]
            elif kind == "T":
                made.trusted.configs[first] = rest[0]
            else:
                trusted = made.trusted
                into = {"F": made.git_files, "A": trusted.absent, "C": trusted.commands, "P": made.protected}
                (into | {"D": trusted.settings})[kind][first] = None
        return made if made.root else None


def moved_path(old: str, new: str, path: str) -> str:
    """A path in a directory that was moved."""
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


def identity(path: str) -> str:
    """Identifies the directory at a path; empty when there is none."""
    try:
        info = os.lstat(path)
    except OSError:
        return ""
    return f"{info.st_dev:x}:{info.st_ino:x}"


class Marker:
    """The marker of one tree, which we hold a lock on."""

    def __init__(self, path: str) -> None:
        """Waits while another sandbox starts. `left`: what killed ones left; `shared`: what a running one wrote."""
        self.path = path
        self.left: Baseline | None = None
        self.shared: Baseline | None = None
        while True:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            alone = _lock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not alone:
                _lock(self._fd, fcntl.LOCK_SH)
            if _is_at(self._fd, path):
                break
            os.close(self._fd)  # its last holder removed it meanwhile
        known = Baseline.decode(_whole(self._fd))
        if alone:
            self.left = known
        else:
            self.shared = known

    def left_at(self, root: str) -> Baseline | None:
        """What killed sandboxes left in the directory that is at `root` now; None if it is another one."""
        left = self.left
        if left is None or left.root == root:
            return left
        from sandbox.guards.birth_time import born  # seldom needed

        try:  # the number may be that of a newer directory by now
            return left.moved(root) if 0 < born(root) <= os.fstat(self._fd).st_mtime_ns else None
        except OSError:
            return None

    def write(self, baseline: Baseline) -> None:
        """Writes down what is there, for sandboxes that start while we run."""
        data = baseline.encode()
        if os.pwrite(self._fd, data, 0) != len(data):  # the disk is full: half of it would be trusted as the whole
            os.pwrite(self._fd, ENDED, 0)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        os.ftruncate(self._fd, len(data))
        _lock(self._fd, fcntl.LOCK_SH)

    def is_old(self) -> bool:
        """Whether nobody will come back to what killed sandboxes left."""
        return time.time() - os.fstat(self._fd).st_mtime > OLD

    def close(self, remove: bool = False) -> bool:
        """If we are the last one, marks the file as ended, or removes it. Returns whether we were. Idempotent."""
        if self._fd < 0:
            return False
        last = _lock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if last:
            if remove:
                try:
                    os.unlink(self.path)
                except OSError:
                    pass
            else:  # the file stays for the next run: creating and removing one costs more than everything else here
                os.pwrite(self._fd, ENDED, 0)
        os.close(self._fd)
        self._fd = -1
        return last

    def let_go(self) -> None:
        """Releases the lock and leaves the file as it is."""
        os.close(self._fd)
        self._fd = -1


def markers_of(home: str, root: str) -> str:
    """Where the marker of a tree is."""
    return f"{home}/git/{identity(root).replace(':', '-')}"


def all_markers(home: str) -> Iterator[str]:
    """Every marker of this user."""
    try:
        names = os.listdir(f"{home}/git")
    except OSError:
        return
    yield from (f"{home}/git/{name}" for name in sorted(names))


def _whole(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    return os.pread(fd, size, 0) if size else b""


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def _lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how)
    except OSError:
        return False
    return True
