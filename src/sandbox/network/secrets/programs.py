"""Where programs of the host that print secrets are looked for: nowhere that a tenant can have put one.

A shell with a project's virtual environment has its `bin` on PATH, and tenants write there. What they left as `gh`
would run outside the walls. Light to import.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_written: set[str] = set()  # of all sandboxes of this process


def tenants_write(directories: Iterable[str]) -> None:
    """Tenants have, or had, these directories of the host to write into."""
    _written.update(os.path.realpath(os.path.expanduser(one)) for one in directories)


def safe_path() -> str:
    """PATH without what is relative, in the current directory or one of those that tenants write into, or made for a
    project: a virtual environment, or `node_modules`. Of those we cannot tell who has written into them."""
    return os.pathsep.join(one for one in os.environ.get("PATH", os.defpath).split(os.pathsep) if _safe(one))


def environment() -> dict[str, str]:
    """For the program: what it runs in its turn is found in the same places."""
    return {**os.environ, "PATH": safe_path()}


def _safe(directory: str) -> bool:
    if not os.path.isabs(directory):
        return False
    place = os.path.realpath(directory)
    if "node_modules" in place.split("/") or os.path.exists(os.path.join(os.path.dirname(place), "pyvenv.cfg")):
        return False
    return not any(place == one or place.startswith(f"{one.rstrip('/')}/") for one in (*_written, _here()))


def _here() -> str:
    """The current directory, unless everything or the person's home is in it: then it is no project."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:
        return "/nonexistent"
    home = os.path.realpath(os.path.expanduser("~"))
    return "/nonexistent" if here == "/" or home == here or home.startswith(f"{here}/") else here
