"""The two interfaces that a provider of files implements.

A path is absolute within the provider, with `/` between its parts, no `.` or `..`, and `/` alone for the root; bytes
that are not UTF-8 arrive as surrogates (`os.fsencode` restores them). A provider reports errors as an `OSError` with an
errno. Anything else that it raises reaches the tenant as EIO.

Calls come from several threads at once; a provider that is not thread-safe must use its own lock.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol, Unpack

    class Guard(Protocol):
        """The rules for one host directory. Paths are as in a provider."""

        def blocked(self, path: str, info: os.stat_result) -> bool:
            """Whether nobody inside may read or change this file."""

        def closed(self, path: str) -> bool:
            """Whether a rule about names blocks the path, or a directory above it."""

        def frozen(self, path: str) -> bool:
            """Whether programs on the host act on it, or on what is below: it must stay as it is."""

        def moved(self) -> None:
            """Called before a directory is renamed, so that blocked files in it are remembered by inode."""


WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC  # the flags of `open` that change a file, or may


NAME_MAX = 255
PATH_MAX = 4096


# The kernel uses its coarse clock for file times. With a finer one ours would be later than those it sets next.
_CLOCK_REALTIME_COARSE = 5


def now_ns() -> int:
    """The current time, for a file's timestamps."""
    try:
        return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
    except OSError:  # not Linux
        return time.time_ns()


def failure(number: int, path: str | None = None) -> OSError:
    """The OSError (of the right subclass) for an errno."""
    return OSError(number, os.strerror(number), path)


@dataclass(slots=True)
class FileInfo:
    """The result of `stat`. A simple provider sets only `size` and `mode`; a mode without a type is a regular file."""

    size: int = 0
    mode: int = 0o644
    mtime_ns: int = 0
    atime_ns: int = 0
    ctime_ns: int = 0
    nlink: int = 1
    uid: int = 0
    """0 is the tenant itself, whoever that is inside."""
    gid: int = 0
    ino: int = 0
    """Two paths with the same number are the same file (hard links). 0: every path is a file of its own."""
    blocks: int | None = None
    """In units of 512 bytes; by default what `size` takes."""

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self.mode)


@dataclass(slots=True)
class DirEntry:
    """One name in a directory. With `info`, a tenant's `ls -l` costs no further call."""

    name: str
    info: FileInfo | None = None


@dataclass(slots=True)
class Space:
    """What `df` shows."""

    total: int = 1 << 40
    free: int = 1 << 40
    files: int = 1 << 20
    files_free: int = 1 << 20


class Changes(TypedDict, total=False):
    """What `setattr` changes; what is absent stays."""

    mode: int
    uid: int
    gid: int
    size: int
    atime_ns: int
    mtime_ns: int


class Handle(ABC):
    """An open file. It works even after its name has been removed."""

    @abstractmethod
    def read(self, size: int, offset: int) -> bytes | bytearray | memoryview:
        """At most `size` bytes from `offset`; fewer only at the end of the file."""

    def write(self, data: memoryview, offset: int) -> int:
        """Writes all of `data` (valid during the call only); returns how many bytes were taken."""
        raise failure(errno.EROFS)

    def sync(self) -> None:  # noqa: B027 - optional
        """Makes what was written durable."""

    def flush(self) -> None:  # noqa: B027 - optional
        """A tenant closed one of its descriptors; called only when the provider sets `flushes`."""

    def close(self) -> None:  # noqa: B027 - optional
        """The last descriptor is gone."""

    def stat(self) -> FileInfo:
        """Like the provider's `stat`, for this open file. Optional: without it `stat` of the path is used."""
        raise failure(errno.ENOSYS)

    def setattr(self, **changes: Unpack[Changes]) -> None:
        """Like the provider's `setattr`, for this open file. Optional, like `stat`."""
        raise failure(errno.ENOSYS)


class Provider(ABC):
    """A tree of files. `stat`, `readdir` and `open` are enough for a read-only one; each further method allows more."""

    readonly: bool = False
    """Nothing here can be changed: every attempt is refused before the provider is asked."""
    cache_seconds: float = 1.0
    """How long the kernel may remember names and attributes. 0: it asks every time."""
    writeback: bool = False
    """The kernel may keep small writes back and send large ones later: pays where a write is dear, as over a network;
    elsewhere it costs two more requests for each file made. Only the tenant may change what is here."""
    keep_cache: bool = False
    """A file whose size and mtime_ns are unchanged has unchanged content, so the kernel may keep what it has read."""
    flushes: bool = False
    """`Handle.flush` must be called on every close, and its error is the tenant's `close` error."""
    xattrs: bool = False
    """The four extended-attribute methods work."""

    @abstractmethod
    def stat(self, path: str) -> FileInfo:
        """What `path` is, without following a symbolic link. Raises FileNotFoundError, NotADirectoryError."""

    @abstractmethod
    def readdir(self, path: str) -> Iterable[DirEntry]:
        """The names in a directory, without `.` and `..`. Raises NotADirectoryError."""

    @abstractmethod
    def open(self, path: str, flags: int, mode: int = 0) -> Handle:
        """Opens an existing file (O_TRUNC among `flags` empties it)."""

    def create(self, path: str, mode: int) -> Handle:
        """Makes a new file, open for reading and writing. Raises FileExistsError."""
        raise failure(errno.EROFS, path)

    def mkdir(self, path: str, mode: int) -> None:
        raise failure(errno.EROFS, path)

    def remove(self, path: str) -> None:
        """Removes a file or an empty directory. Raises OSError ENOTEMPTY."""
        raise failure(errno.EROFS, path)

    def rename(self, old: str, new: str) -> None:
        """Moves a file or directory, and replaces what is at `new`, as rename(2) does."""
        raise failure(errno.EROFS, old)

    def symlink(self, target: str, link: str) -> None:
        raise failure(self._no_such_thing(), link)

    def readlink(self, path: str) -> str:
        raise failure(errno.EINVAL, path)

    def link(self, path: str, new: str) -> None:
        """Makes a second name for the same file."""
        raise failure(self._no_such_thing(), new)

    def mknod(self, path: str, mode: int) -> None:
        """Makes a fifo or the file of a socket. Never a device: tenants cannot have devices."""
        raise failure(self._no_such_thing(), path)

    def _no_such_thing(self) -> int:
        """Why there are no links or fifos: nothing at all can be made here, or only those cannot."""
        return errno.EROFS if type(self).create is Provider.create else errno.EPERM

    def setattr(self, path: str, **changes: Unpack[Changes]) -> None:
        raise failure(errno.EROFS, path)

    def statfs(self) -> Space:
        return Space()

    def getxattr(self, path: str, name: str) -> bytes:
        raise failure(errno.ENOTSUP, path)

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        raise failure(errno.ENOTSUP, path)

    def listxattr(self, path: str) -> list[str]:
        raise failure(errno.ENOTSUP, path)

    def removexattr(self, path: str, name: str) -> None:
        raise failure(errno.ENOTSUP, path)

    def guard(self, rules: Callable[[str], Guard]) -> None:  # noqa: B027 - optional
        """For providers that show files of the host: `rules(directory)` returns the rules for one directory."""

    def close(self) -> None:  # noqa: B027 - optional
        """The mount is gone. Called once."""


def clean(path: str) -> str:
    """`path` as providers expect it. Raises OSError if it is not valid; `..` is refused, not resolved."""
    if "\0" in path:
        raise failure(errno.EINVAL, path)
    if len(path) > PATH_MAX:
        raise failure(errno.ENAMETOOLONG, path)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise failure(errno.EINVAL, path)
    if any(len(part) > NAME_MAX // 4 and len(os.fsencode(part)) > NAME_MAX for part in parts):
        raise failure(errno.ENAMETOOLONG, path)
    return "/" + "/".join(parts)


def split(path: str) -> tuple[str, str]:
    """The parent directory and the last name of a clean path."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def join(parent: str, name: str) -> str:
    return f"{parent}{name}" if parent == "/" else f"{parent}/{name}"


def info_or_none(provider: Provider, path: str) -> FileInfo | None:
    """What `path` is, or None when nothing is there."""
    try:
        return provider.stat(path)
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise
