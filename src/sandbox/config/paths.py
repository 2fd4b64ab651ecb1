"""Comparing paths as text."""

from __future__ import annotations

import os


def is_beneath(path: str, ancestor: str) -> bool:
    """Whether `path` is `ancestor` or lies below it. Both are absolute and normalised."""
    return path == ancestor or path.startswith(ancestor.rstrip("/") + "/")


def absolute(path: str, project: str) -> str:
    """A path of a config file as the kernel will see it: `~` and links resolved, relative to the project."""
    return os.path.realpath(os.path.join(project, os.path.expanduser(path)))


#: Where every system has programs: looking for links on the way to them would only take time.
USUAL = frozenset(("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))


def search_path() -> list[str]:
    """The directories of PATH without links, in order. (`os.get_exec_path` would import `warnings`.)"""
    listed = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [one if one in USUAL else os.path.realpath(one or ".") for one in dict.fromkeys(listed)]
