"""Taking away directories that a tenant may have written in: an overlay's layer is kept among the user's own things."""

from __future__ import annotations

import os
import stat


def remove_tree(directory: str) -> None:
    """Removes a tree, however deep and whatever its modes. Nothing in it may still be in use.

    Each directory is brought up to the top before it is emptied, so that neither recursion nor path length is the
    choice of whoever made the tree. Raises FileNotFoundError when somebody else removes the same one.
    """
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mark, number = f".discard-{os.urandom(8).hex()}-", 0
        waiting = ["."]
        while waiting:
            holder = waiting.pop()
            fd = os.open(holder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
            try:
                for name in os.listdir(fd):
                    if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                        os.unlink(name, dir_fd=fd)
                        continue
                    os.chmod(name, 0o700, dir_fd=fd)
                    number += 1
                    os.rename(name, f"{mark}{number}", src_dir_fd=fd, dst_dir_fd=top)
                    waiting.append(f"{mark}{number}")
            finally:
                os.close(fd)
            if holder != ".":
                os.rmdir(holder, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(directory)
