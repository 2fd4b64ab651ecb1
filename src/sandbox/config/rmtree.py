"""Taking away directories that a tenant may have written in: an overlay's layer is kept among the user's own things."""

from __future__ import annotations

import os
import stat

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(directory: str) -> None:
    """Removes a tree, however deep and whatever its modes. Nothing in it may still be in use.

    Raises FileNotFoundError when somebody else removes the same one.
    """
    top = os.open(directory, os.O_RDONLY | _DIRECTORY)
    try:
        empty_tree(top)
    finally:
        os.close(top)
    os.rmdir(directory)


def empty_tree(top: int) -> None:
    """Removes all that is in an open directory.

    Each directory is brought up to the top before it is emptied, so that neither recursion nor path length is the
    choice of whoever made the tree.
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


def _open_up(parent: int, name: str) -> None:
    # By a descriptor: a link that takes the directory's place at this moment must not be followed.
    fd = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)
