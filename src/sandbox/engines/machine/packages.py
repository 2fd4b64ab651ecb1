"""What `apt` and `dpkg` need of the host, for root of a machine: what they change is in the machine's memory."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.plan.plan import Plan

DATABASE = "/var/lib/dpkg"
# Locks are made anew. Exceptions for files (statoverride) name users and groups of the host, which the machine lacks.
# The journal of an installation that goes on just now (updates) would be dpkg's to finish inside.
LEFT_OUT = ("lock", "statoverride", "updates")
KEYS = ("/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d", "/etc/apt/keyrings", "/etc/apt/preferences.d")
SOURCES = "/etc/apt/sources.list"
SOURCES_MOST = 1 << 20  # bytes
_LOGIN = re.compile(rb"://[^/\s]*@")  # a password for a source of packages


def show_packages(plan: Plan) -> None:
    """Adds the list of installed packages to the plan, and where others come from. Nothing where there is no dpkg."""
    database = [path for name in _entries(DATABASE) if not name.startswith(LEFT_OUT) for path in _readable(name)]
    if not database:
        return
    for path in (*database, *filter(os.path.exists, KEYS), *_sources()):
        plan.show(path, path, False)
    # apt makes its own below the first two; dpkg wants the last, and it has to be empty.
    plan.directories += ["/var/cache", "/var/log", "/var/lib", DATABASE, f"{DATABASE}/updates"]


def _readable(name: str) -> list[str]:
    """An entry of the database, or what is in it without what only root of the host may read: other locks, which
    nobody but root could open, and dpkg makes one where there is none."""
    path = f"{DATABASE}/{name}"
    try:
        inside = [one.path for one in os.scandir(path)]
    except NotADirectoryError:
        inside = []
    except OSError:
        return []
    readable = [one for one in (inside or [path]) if os.access(one, os.R_OK)]
    return [path] if len(readable) == len(inside) else readable


def _sources() -> Iterator[str]:
    """The files that name sources, without those that only some people may read or that have a password."""
    below = f"{SOURCES}.d"
    for path in (SOURCES, *(f"{below}/{name}" for name in _entries(below))):
        try:
            with open(path, "rb") as file:
                public = os.fstat(file.fileno()).st_mode & 0o004
                content = file.read(SOURCES_MOST + 1)
        except OSError:
            continue
        if public and len(content) <= SOURCES_MOST and not _LOGIN.search(content):
            yield path


def _entries(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
