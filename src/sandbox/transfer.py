"""Whole directories in and out of a sandbox, file by file.

Both sides may change while they are copied, and untrusted programs control the inside. So the host's side is walked by
descriptors, no link is followed, and only regular files are read. A name that comes from inside must be a plain name.
"""

from __future__ import annotations

import errno
import os
import stat

from sandbox.info import FileInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.arguments import Path
    from sandbox.file_methods import FileMethods

DEEPEST = 256
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


def download(sandbox: FileMethods, source: Path, target: Path) -> list[str]:
    """See `FileMethods.download`."""
    skipped: list[str] = []
    info = sandbox.stat(source)
    place = os.path.abspath(target)
    if not info.is_dir:
        parent = os.open(os.path.dirname(place), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _receive_file(sandbox, os.fspath(source), parent, os.path.basename(place), info.mode)
        finally:
            os.close(parent)
        return skipped
    os.makedirs(place, exist_ok=True)
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _receive_directory(sandbox, os.fspath(source), fd, "", skipped, 0)
    finally:
        os.close(fd)
    return skipped


def _receive_directory(sandbox: FileMethods, source: str, fd: int, below: str, skipped: list[str], depth: int) -> None:
    _check_depth(depth, below)
    for info in sandbox.list_files(source):
        if "/" in info.name or "\0" in info.name or info.name in ("", ".", ".."):
            raise OSError(errno.EINVAL, "the sandbox lists something that is not a name", f"{below}{info.name}")
        _receive(sandbox, f"{source}/{info.name}", fd, info, f"{below}{info.name}", skipped, depth)


def _receive(
    sandbox: FileMethods, inside: str, fd: int, info: FileInfo, shown: str, skipped: list[str], depth: int
) -> None:
    if info.kind == "directory":
        try:
            os.mkdir(info.name, 0o700, dir_fd=fd)
        except FileExistsError:
            pass  # an existing directory is added to; anything else cannot be opened as a directory
        with _Opened(info.name, _DIRECTORY, fd) as child:
            _receive_directory(sandbox, inside, child, f"{shown}/", skipped, depth + 1)
            os.fchmod(child, info.mode & 0o777)
    elif info.kind == "symlink":
        _remove(info.name, fd)
        os.symlink(sandbox.read_link(inside), info.name, dir_fd=fd)
    elif info.kind == "file":
        _receive_file(sandbox, inside, fd, info.name, info.mode)
    else:
        skipped.append(shown)


def _receive_file(sandbox: FileMethods, source: str, parent: int, name: str, mode: int) -> None:
    pieces = sandbox._read_pieces(source)
    first = next(pieces, b"")  # before anything is replaced, in case it cannot be read
    _remove(name, parent)
    # Made anew: never written through a link, and never into a file that has another name elsewhere.
    with _Opened(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, parent) as file:
        _write(file, first)
        for data in pieces:
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
