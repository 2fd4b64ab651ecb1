"""A directory that an image is unpacked into, changed only through descriptors.

The kernel resolves every path with the directory as its root (`openat2`, RESOLVE_IN_ROOT), so no name and no link of an
image leads out of it, and a link in the last part of a path is never followed. Nobody else changes the tree meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox.config.openat2 import IN_ROOT, NO_MAGICLINKS, NO_SYMLINKS, O_PATH, openat2
from sandbox.config.rmtree import remove_tree
from sandbox.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DIRECTORY = O_PATH | os.O_DIRECTORY


class ImageTree:
    """The tree at `root`."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self._top = os.open(root, _DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._top)

    @contextmanager
    def parent(self, parts: Sequence[bytes], *, make: bool = True) -> Iterator[int]:
        """The open directory that holds the last of `parts`. With `make`, missing directories above it are created.
        Raises OSError, and ImageError when something on the way is not a directory."""
        fd = self._directory(parts[:-1], make)
        try:
            yield fd
        finally:
            os.close(fd)

    def _directory(self, parts: Sequence[bytes], make: bool) -> int:
        try:
            return openat2(self._top, b"/".join(parts) or b".", _DIRECTORY, 0, IN_ROOT | NO_MAGICLINKS)
        except FileNotFoundError:
            if not make or not parts:
                raise
        except NotADirectoryError:
            raise ImageError(
                "{path} of the image lies in something that is not a directory", path=shown(parts)
            ) from None
        above = self._directory(parts[:-1], make)
        try:
            os.mkdir(parts[-1], 0o755, dir_fd=above)
        except FileExistsError:  # a link that leads nowhere
            raise ImageError(
                "{path} of the image lies in something that is not a directory", path=shown(parts)
            ) from None
        finally:
            os.close(above)
        return self._directory(parts, False)

    def path_of(self, directory: int, name: bytes) -> bytes:
        """The path of a name in an open directory, from the top of the tree and without links."""
        where = os.readlink(f"/proc/self/fd/{directory}".encode())
        return where[len(os.fsencode(self.root)) :] + b"/" + name

    def remove(self, directory: int, name: bytes) -> None:
        """Removes whatever has this name, if anything."""
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):  # POSIX says EPERM for a directory
            if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                raise
            remove_tree(f"/proc/self/fd/{directory}/{os.fsdecode(name)}")

    def set(self, path: bytes, mode: int, mtime: float) -> None:
        """Sets mode and time of a directory, by a path without links. Does nothing if it no longer exists."""
        try:
            fd = openat2(self._top, path[1:] or b".", _DIRECTORY, 0, IN_ROOT | NO_SYMLINKS)
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            return
        try:
            os.utime(f"/proc/self/fd/{fd}", (mtime, mtime))
            os.chmod(f"/proc/self/fd/{fd}", mode)
        finally:
            os.close(fd)


def shown(parts: Sequence[bytes]) -> str:
    """A path of the image, for a message."""
    return ascii(os.fsdecode(b"/" + b"/".join(parts))[:200])
