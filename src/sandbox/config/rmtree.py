"""Removes directories that a tenant may have written to, such as an overlay's layer in the user's SANDBOX_HOME."""

from __future__ import annotations

import os
import stat
import sys

LINUX = sys.platform == "linux"
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(directory: str) -> None:
    """Removes a tree of any depth and with any modes. Nothing in it may be in use.

    Raises FileNotFoundError if somebody else removes it at the same time.
    """
    top = os.open(directory, os.O_RDONLY | _DIRECTORY)
    try:
        empty_tree(top)
    finally:
        os.close(top)
    os.rmdir(directory)


def empty_tree(top: int) -> None:
    """Removes everything in an open directory.

    Moves each directory to the top before emptying it, so that the tree's author chooses neither the depth of
    recursion nor the length of paths.
    """
    mark, number = f".discard-{os.urandom(8).hex()}-", 0
    waiting = ["."]
    while waiting:
        holder = waiting.pop()
        fd = os.open(holder, os.O_RDONLY | _DIRECTORY, dir_fd=top)
        try:
            for name in os.listdir(fd):
                if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=fd)
                    continue
                _open_up(fd, name)
                number += 1
                os.rename(name, f"{mark}{number}", src_dir_fd=fd, dst_dir_fd=top)
                waiting.append(f"{mark}{number}")
        finally:
            os.close(fd)
        if holder != ".":
            os.rmdir(holder, dir_fd=top)


def _open_up(parent: int, name: str, *, proc: bool = LINUX) -> None:
    """Makes a directory readable and writable. Does not follow a link that replaces it meanwhile."""
    if not (sys.platform == "linux" and proc):
        os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=False)
        return
    fd = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)
