"""Copies directories that a tenant may have written, with everything that matters to an overlay.

A layer of overlayfs marks removed files with devices of number 0 and with extended attributes. Copies share their
blocks with the original if the file system supports it. Nothing is reached by a path that a tenant could redirect, and
nothing that is mounted on the tree is followed.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FICLONE = 0x40049409  # _IOW(0x94, 9, int)
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
DEPTH = 200  # nested directories; each takes two frames of Python's stack and two descriptors
ENTRIES = 5_000_000  # files, directories and links of one copy


class Trees:
    """Copies trees, at most `most` bytes in all."""

    def __init__(self, most: int) -> None:
        self.size = 0
        self._most = most
        self._entries = 0

    def copy(self, source: int, target: int) -> None:
        """Copies the content of the directory `source` into the directory `target`. Both are open. Raises OSError."""
        self._directory(source, target, os.fstat(source).st_dev, _Links(target), ())
        _finish(target, os.fstat(source), source)

    def _directory(self, source: int, to: int, device: int, links: _Links, above: tuple[str, ...]) -> None:
        if len(above) > DEPTH:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        for name in os.listdir(source):
            self._entries += 1
            if self._entries > ENTRIES:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            try:
                status = os.stat(name, dir_fd=source, follow_symlinks=False)
            except PermissionError:
                continue  # a cover: nobody may look at what is mounted there
            if status.st_dev != device:
                continue  # something is mounted there
            if stat.S_ISDIR(status.st_mode):
                self._subdirectory(name, source, to, status, links, above)
            elif status.st_nlink == 1 or not links.made(status.st_ino, name, to):
                self._entry(name, source, to, status)
                if status.st_nlink > 1:
                    links.remember(status.st_ino, (*above, name))

    def _subdirectory(
        self, name: str, source: int, to: int, status: os.stat_result, links: _Links, above: tuple[str, ...]
    ) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=to)
        except FileExistsError:
            pass  # something is mounted in it
        inner_to = os.open(name, DIRECTORY, dir_fd=to)
        try:
            with entered(name, source, status) as inner_from:
                self._directory(inner_from, inner_to, status.st_dev, links, (*above, name))
                _finish(inner_to, status, inner_from)
        finally:
            os.close(inner_to)

    def _entry(self, name: str, source: int, to: int, status: os.stat_result) -> None:
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFREG:
            self._file(name, source, to, status)
        elif kind == stat.S_IFLNK:
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=to)
            os.utime(name, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=to, follow_symlinks=False)
        elif kind == stat.S_IFIFO or (kind == stat.S_IFCHR and status.st_rdev == 0):
            os.mknod(name, status.st_mode, 0, dir_fd=to)
            _set_mode(name, to, status)  # the umask took some of it
        # Sockets and other devices are left out.

    def _file(self, name: str, source: int, to: int, status: os.stat_result) -> None:
        self.size += status.st_blocks * 512
        if self.size > self._most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        old = opened_anyway(name, source, status, flags)
        new = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=to)
        try:
            copy_content(old, new)
            _finish(new, status, old)
        finally:
            os.close(old)
            os.close(new)


class _Links:
    """The copies of files that have several names, by the number of the original.

    A copy is found again from the top, name by name: the tree may be in another mount namespace, where its path means
    nothing here, and an open descriptor for each would be too many.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self._known: dict[int, tuple[str, ...]] = {}

    def remember(self, number: int, path: tuple[str, ...]) -> None:
        self._known[number] = path

    def made(self, number: int, name: str, to: int) -> bool:
        """Makes `name` in the directory `to` a link to the copy, if there is one that can be reached."""
        path = self._known.get(number)
        if path is None:
            return False
        parent = os.dup(self._top)
        try:
            for part in path[:-1]:
                inner = os.open(part, os.O_PATH | DIRECTORY, dir_fd=parent)
                os.close(parent)
                parent = inner
            os.link(path[-1], name, src_dir_fd=parent, dst_dir_fd=to, follow_symlinks=False)
        except OSError:
            return False  # its directory has its mode already, or is another mount, or it is a socket: no copy was made
        finally:
            os.close(parent)
        return True


@contextmanager
def own_directory(path: str) -> Iterator[int]:
    """Opens one of our own directories, whose path no tenant can change. Raises OSError."""
    opened = os.open(path, DIRECTORY & ~os.O_NOFOLLOW)
    try:
        yield opened
    finally:
        os.close(opened)


@contextmanager
def directory_inside(pid: int, path: str) -> Iterator[int]:
    """Opens a directory inside, by its path from the root of the process `pid` there. Raises OSError.

    Tenants can replace the directories above it with links, which through an ordinary path would lead to the host's
    files. So no link is followed, and nothing leads out of that root.
    """
    from sandbox.config.openat2 import IN_ROOT, NO_MAGICLINKS, NO_SYMLINKS, openat2

    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name, resolve = os.fsencode(path.lstrip("/") or "."), IN_ROOT | NO_SYMLINKS | NO_MAGICLINKS
        opened = openat2(root, name, os.O_RDONLY | os.O_DIRECTORY, 0, resolve)
    finally:
        os.close(root)
    try:
        yield opened
    finally:
        os.close(opened)


def opened_anyway(name: str, parent: int, status: os.stat_result, flags: int) -> int:
    """Opens a file or directory, even if its mode does not let its owner read it."""
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            path = f"/proc/self/fd/{handle}"
            os.chmod(path, stat.S_IMODE(status.st_mode) | 0o700)
            try:
                return os.open(name, flags, dir_fd=parent)
            finally:
                os.chmod(path, stat.S_IMODE(status.st_mode))
        finally:
            os.close(handle)


@contextmanager
def entered(name: str, parent: int, status: os.stat_result) -> Iterator[int]:
    """Opens a directory. If its mode keeps its owner out, it lets them in meanwhile: looking at an entry needs the
    right to search its directory, even when that is open."""
    opened = opened_anyway(name, parent, status, DIRECTORY)
    closed = os.geteuid() != 0 and status.st_mode & 0o500 != 0o500
    try:
        if closed:
            os.fchmod(opened, stat.S_IMODE(status.st_mode) | 0o500)
        yield opened
    finally:
        if closed:
            os.fchmod(opened, stat.S_IMODE(status.st_mode))
        os.close(opened)


def _set_mode(name: str, parent: int, status: os.stat_result) -> None:
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(status.st_mode))
    finally:
        os.close(handle)


def _finish(new: int, status: os.stat_result, old: int) -> None:
    for name, value in marks(old):
        os.setxattr(new, name, value)
    if os.geteuid() == 0:
        os.chown(new, status.st_uid, status.st_gid)
    os.chmod(new, stat.S_IMODE(status.st_mode))
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))


def copy_content(old: int, new: int) -> None:
    """Copies a file into an empty one: shares its blocks if possible, else copies everything but holes."""
    import fcntl

    try:
        fcntl.ioctl(new, FICLONE, old)
        return
    except OSError:
        pass
    os.ftruncate(new, os.fstat(old).st_size)
    for first, last in extents(old):
        os.lseek(new, first, os.SEEK_SET)
        while first < last:
            first += os.sendfile(new, old, first, last - first)


def extents(descriptor: int) -> list[tuple[int, int]]:
    """The parts of a file that are not holes."""
    found, at = [], 0
    end = os.fstat(descriptor).st_size
    while at < end:
        try:
            first = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:
            break  # nothing more
        at = os.lseek(descriptor, first, os.SEEK_HOLE)
        found.append((first, at))
    return found


def marks(opened: int) -> list[tuple[str, bytes]]:
    """The user extended attributes. Reading them needs permission to read the file, even when it is open."""
    names = sorted(name for name in os.listxattr(opened) if name.startswith("user."))
    try:
        return [(name, os.getxattr(opened, name)) for name in names]
    except PermissionError:
        mode = stat.S_IMODE(os.fstat(opened).st_mode)
        os.fchmod(opened, mode | 0o600)
        try:
            return [(name, os.getxattr(opened, name)) for name in names]
        finally:
            os.fchmod(opened, mode)
