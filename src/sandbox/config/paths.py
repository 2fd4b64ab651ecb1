"""Comparing paths as text."""

from __future__ import annotations

import os


def is_beneath(path: str, ancestor: str) -> bool:
    """Whether `path` is `ancestor` or lies below it. Both are absolute and normalised."""
    return path == ancestor or path.startswith(ancestor.rstrip("/") + "/")


def absolute(path: str, project: str) -> str:
    """A path of a config file as the kernel will see it: `~` and links resolved, relative to the project."""
    return os.path.realpath(os.path.join(project, os.path.expanduser(path)))
