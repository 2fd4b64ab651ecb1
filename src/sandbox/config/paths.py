"""Comparing paths as text."""

from __future__ import annotations


def is_beneath(path: str, ancestor: str) -> bool:
    """Whether `path` is `ancestor` or lies below it. Both are absolute and normalised."""
    return path == ancestor or path.startswith(ancestor.rstrip("/") + "/")
