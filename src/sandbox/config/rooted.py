"""Paths inside another root: where a path leads for processes that have a directory of the host as their `/`."""

from __future__ import annotations

import os

MOST_LINKS = 40  # the kernel's limit


def inside(root: str, path: str) -> str | None:
    """Resolves the links in `path` as if `root` were `/`. Returns None when nothing is there.

    No link leads out of `root`. The tree must not change meanwhile.
    """
    waiting = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    at = ""
    links = 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            at = at.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{root}{at}/{part}")
        except FileNotFoundError:
            return None
        except OSError:  # not a link
            at = f"{at}/{part}"
            continue
        links += 1
        if links > MOST_LINKS:
            return None
        if target.startswith("/"):
            at = ""
        waiting += (one for one in reversed(target.split("/")) if one not in ("", "."))
    return at or "/"


def read_inside(root: str, path: str, most: int) -> bytes | None:
    """The first `most` bytes of the regular file at `path` in `root`; None when there is no such file to read."""
    import stat

    found = inside(root, path)
    if found is None:
        return None
    try:
        fd = os.open(root + found, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    with open(fd, "rb") as file:
        return file.read(most) if stat.S_ISREG(os.fstat(fd).st_mode) else None
