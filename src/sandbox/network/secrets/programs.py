"""Where programs of the host that print secrets are looked for: nowhere that a tenant can have put one.

A shell with a project's virtual environment has its `bin` on PATH, and tenants write there. What they left as `gh`
would run outside the walls. Light to import.
"""

from __future__ import annotations

import os

from sandbox.guards.written_places import written


def safe_path() -> str:
    """PATH without what is relative, in the current directory, where tenants have ever written, or made for a project:
    a virtual environment, or `node_modules`. Such a directory may be a copy of one that tenants wrote into."""
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
    here = _here()
    return not (place == here or place.startswith(f"{here}/") or written(place))


def _here() -> str:
    """The current directory, unless everything or the person's home is in it: then it is no project."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:
        return "/nonexistent"
    home = os.path.realpath(os.path.expanduser("~"))
    return "/nonexistent" if here == "/" or home == here or home.startswith(f"{here}/") else here
