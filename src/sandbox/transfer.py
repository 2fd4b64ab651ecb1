"""Whole directories in and out of a sandbox, file by file.

Both sides may change while they are copied, and untrusted programs control the inside. So the host's side is walked by
descriptors, no link is followed, and only regular files are read. A name that comes from inside must be a plain name.
"""

from __future__ import annotations

import errno
import os
import stat
from itertools import chain

from sandbox.info import FileInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.arguments import Path
    from sandbox.file_methods import FileMethods

DEEPEST = 256
ENTRIES_MOST = 1_000_000  # of one download
ENTRY_COST = 4096  # bytes counted for each entry besides its content: an inode of the host
UMASK = 0o022  # the guest's, for new files and directories
PIECE = 2**20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def upload(sandbox: FileMethods, source: Path, target: Path) -> list[str]:
    """See `FileMethods.upload`."""
    skipped: list[str] = []
    # `source` itself may be a link; links below it are never followed.
    fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            _send_directory(sandbox, fd, os.fspath(target), "", skipped, 0)
        elif _send_file(sandbox, fd, os.fspath(target)):
            sandbox.chmod(target, stat.S_IMODE(os.fstat(fd).st_mode) & 0o777)  # a file that existed kept its own mode
        else:
            raise OSError(errno.EINVAL, "is neither a file nor a directory", os.fspath(source))
    finally:
        os.close(fd)
    return skipped


def _send_directory(sandbox: FileMethods, fd: int, target: str, below: str, skipped: list[str], depth: int) -> None:
    _check_depth(depth, below)
    mode, existed = stat.S_IMODE(os.fstat(fd).st_mode) & 0o777, _is_directory(sandbox, target)
    sandbox.mkdir(target, mode | 0o700)
    there = {one.name: one for one in sandbox.list_files(target)} if existed else {}
    for name in sorted(os.listdir(fd)):
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
        inside, shown = f"{target}/{name}", f"{below}{name}"
        if name in there and not stat.S_ISDIR(info.st_mode) and not there[name].is_dir:
            sandbox.remove(inside)  # rather than overwrite it: it may be a link, and its mode would stay
        if stat.S_ISDIR(info.st_mode):
            with _Opened(name, _DIRECTORY, fd) as child:
                _send_directory(sandbox, child, inside, f"{shown}/", skipped, depth + 1)
        elif stat.S_ISLNK(info.st_mode):
            sandbox.symlink(os.readlink(name, dir_fd=fd), inside)
        elif not stat.S_ISREG(info.st_mode):
            skipped.append(shown)
        else:
            with _Opened(name, _FILE, fd) as child:
                if not _send_file(sandbox, child, inside):
                    skipped.append(shown)
    if not existed and mode != (mode | 0o700) & ~UMASK:
        sandbox.chmod(target, mode)  # last: the mode may forbid the writes above


def _is_directory(sandbox: FileMethods, path: str) -> bool:
    try:
        return sandbox.stat(path).is_dir
    except (FileNotFoundError, NotADirectoryError):
        return False


def _send_file(sandbox: FileMethods, fd: int, target: str) -> bool:
    """Whether it was a regular file, and has been copied."""
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        return False

    def pieces() -> Iterator[memoryview]:
        while data := os.read(fd, PIECE):
            yield memoryview(data)

    mode = stat.S_IMODE(info.st_mode) & 0o777
    sandbox._write_pieces(target, pieces(), mode | 0o600)  # writable, because each piece may open it anew
    if mode != (mode | 0o600) & ~UMASK:
        sandbox.chmod(target, mode)
    return True


class _Room:
    """What a download may still take of the host's disk. What is inside decides how much there is to copy, and may grow
    while it is copied."""

    def __init__(self, bytes_most: int) -> None:
        self._bytes, self._entries = bytes_most, ENTRIES_MOST
        self.skipped: list[str] = []

    def take(self, count: int, shown: str) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise OSError(errno.EFBIG, "there is more to download than max_bytes allows", shown)

    def entry(self, shown: str) -> None:
        self._entries -= 1
        if self._entries < 0:
            raise OSError(errno.EFBIG, f"there are more than {ENTRIES_MOST} files to download", shown)
        self.take(ENTRY_COST, shown)


def download(sandbox: FileMethods, source: Path, target: Path, max_bytes: int) -> list[str]:
    """See `FileMethods.download`."""
    room = _Room(max_bytes)
    info = sandbox.stat(source)
    place = os.path.abspath(target)
    if not info.is_dir:
        parent = os.open(os.path.dirname(place), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _receive_file(sandbox, os.fspath(source), parent, os.path.basename(place), info.mode, room)
        finally:
            os.close(parent)
        return room.skipped
    os.makedirs(place, exist_ok=True)
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _receive_directory(sandbox, os.fspath(source), fd, "", room, 0)
    finally:
        os.close(fd)
    return room.skipped


def _receive_directory(sandbox: FileMethods, source: str, fd: int, below: str, room: _Room, depth: int) -> None:
    _check_depth(depth, below)
    for info in sandbox.list_files(source):
        if "/" in info.name or "\0" in info.name or info.name in ("", ".", ".."):
            raise OSError(errno.EINVAL, "the sandbox lists something that is not a name", f"{below}{info.name}")
        _receive(sandbox, f"{source}/{info.name}", fd, info, f"{below}{info.name}", room, depth)


def _receive(sandbox: FileMethods, inside: str, fd: int, info: FileInfo, shown: str, room: _Room, depth: int) -> None:
    room.entry(shown)
    if info.kind == "directory":
        try:
            os.mkdir(info.name, 0o700, dir_fd=fd)
        except FileExistsError:
            pass  # an existing directory is added to; anything else cannot be opened as a directory
        with _Opened(info.name, _DIRECTORY, fd) as child:
            _receive_directory(sandbox, inside, child, f"{shown}/", room, depth + 1)
            os.fchmod(child, info.mode & 0o777)
    elif info.kind == "symlink":
        _remove(info.name, fd)
        os.symlink(sandbox.read_link(inside), info.name, dir_fd=fd)
    elif info.kind == "file":
        _receive_file(sandbox, inside, fd, info.name, info.mode, room)
    else:
        room.skipped.append(shown)


def _receive_file(sandbox: FileMethods, source: str, parent: int, name: str, mode: int, room: _Room) -> None:
    pieces = sandbox._read_pieces(source)
    first = next(pieces, b"")  # before anything is replaced, in case it cannot be read
    _remove(name, parent)
    # Made anew: never written through a link, and never into a file that has another name elsewhere.
    with _Opened(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, parent) as file:
        for data in chain((first,), pieces):
            room.take(len(data), source)
            _write(file, data)
        os.fchmod(file, mode & 0o777)


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _remove(name: str, parent: int) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def _check_depth(depth: int, below: str) -> None:
    if depth > DEEPEST:
        raise OSError(errno.ENAMETOOLONG, f"directories are nested more than {DEEPEST} deep", below)


class _Opened:
    """A descriptor that is closed again, whatever happens."""

    def __init__(self, name: str, flags: int, parent: int) -> None:
        self._fd = os.open(name, flags, 0o600, dir_fd=parent)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
