"""Reading and writing single files of a kept home. Tenants wrote there: no link is followed, nothing is trusted."""

from __future__ import annotations

import os
import stat

LARGEST = 2**20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # not blocking: it may be a FIFO


def read(top: str, path: str) -> bytes | None:
    """The file `path` below `top`; None when it is not there, not a regular file, or larger than 1 MiB."""
    try:
        directory = _open(top, os.path.dirname(path), make=False)
    except OSError:
        return None
    try:
        file = os.open(os.path.basename(path), _FILE, dir_fd=directory)
    except OSError:
        return None
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    with open(file, "rb") as opened:
        content = opened.read(LARGEST + 1)
    return content if len(content) <= LARGEST else None


def write(top: str, path: str, content: bytes) -> None:
    """Replaces the file `path` below `top` by one rename, its directories made. Raises OSError: ELOOP or ENOTDIR when a
    tenant has put something else in the way, EISDIR when it put a directory there."""
    directory = _open(top, os.path.dirname(path), make=True)
    name = os.path.basename(path)
    beside = f".{name[:100]}.{os.getpid()}.sandbox-new"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(beside, flags, 0o600, dir_fd=directory), "wb") as file:
            file.write(content)
        os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        try:
            os.unlink(beside, dir_fd=directory)
        except OSError:
            pass
        raise
    finally:
        os.close(directory)


def make_directory(top: str, path: str) -> None:
    """Makes the directory `path` below `top`, if need be, and those above it. Raises OSError: ELOOP or ENOTDIR when a
    tenant has put something else in the way."""
    os.close(_open(top, "" if path == "." else path, make=True))


def _open(top: str, path: str, *, make: bool) -> int:
    directory = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in path.split("/") if path else ():
        try:
            if make:
                try:
                    os.mkdir(name, 0o700, dir_fd=directory)
                except FileExistsError:
                    pass
            below = os.open(name, _DIRECTORY, dir_fd=directory)
        finally:
            os.close(directory)
        directory = below
    return directory
