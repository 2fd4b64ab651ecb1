"""Who the person is, for `git commit` inside: `user.name` and `user.email` from their own settings, and nothing else.

Included files count if git would include them for this project. Of the conditions for that, only those about where the
repository is are supported."""

from __future__ import annotations

import os

from sandbox.guards.git_config import split, written
from sandbox.guards.git_directories import DEEP, as_path, personal_files, read_config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.guards.git_config import Entry

WANTED = ("user.name", "user.email")
IGNORES = "core.excludesfile"


def settings_for(project: str) -> bytes:
    """A configuration with the person's name and address; empty when their settings have neither."""
    found: dict[str, str] = {}
    for path in personal_files():
        _read(path, project, found, 0)
    entries: list[Entry] = [(name, found[name]) for name in WANTED if name in found]
    return written(entries)


def ignored(project: str) -> bytes:
    """The content of the person's own ignore file; empty when they have none."""
    found: dict[str, str] = {}
    for path in personal_files():
        _read(path, project, found, 0)
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    try:
        with open(as_path(found.get(IGNORES, f"{config}/git/ignore"), os.path.expanduser("~")), "rb") as file:
            return file.read(2**20) + b"\n"
    except (OSError, ValueError):
        return b""


def _read(path: str, project: str, found: dict[str, str], depth: int) -> None:
    for name, value in read_config(path) or ():
        if name in (*WANTED, IGNORES) and value:
            found[name] = value
            continue
        section, condition, key = split(name)
        includes = section in ("include", "includeif") and key == "path" and depth < DEEP
        if includes and value and (condition is None or _holds(condition, path, project)):
            _read(as_path(value, os.path.dirname(path)), project, found, depth + 1)


def _holds(condition: str, file: str, project: str) -> bool:
    kind, _, pattern = condition.partition(":")
    if kind not in ("gitdir", "gitdir/i") or not pattern:
        return False
    place = f"{project}/.git/"
    if pattern.startswith("./"):
        pattern = as_path(pattern, os.path.dirname(file)) + ("/" if pattern.endswith("/") else "")
    elif pattern.startswith("~/"):
        pattern = os.path.expanduser("~") + pattern[1:]
    if kind.endswith("i"):
        place, pattern = place.lower(), pattern.lower()
    if any(sign in pattern for sign in "*?["):
        import fnmatch

        anywhere = pattern if pattern.startswith(("/", "*")) else f"*/{pattern}"
        return fnmatch.fnmatchcase(place.rstrip("/"), anywhere + ("*" if pattern.endswith("/") else ""))
    if not pattern.startswith("/"):
        return f"/{pattern.rstrip('/')}/" in place
    return place.startswith(f"{pattern.rstrip('/')}/")
