"""Where to look for the host's programs that print secrets: never where a tenant can have put one.

A shell with a project's virtual environment has its `bin` on PATH, and tenants can write there. A `gh` that they left
there would run outside the walls. Light to import.
"""

from __future__ import annotations

import os

from sandbox.guards.written_places import written


def safe_path() -> str:
    """PATH without directories that are relative, in the current directory, ever written to by tenants, or made for a
    project: a virtual environment or `node_modules`, which may be a copy of one that tenants wrote to."""
    return os.pathsep.join(one for one in os.environ.get("PATH", os.defpath).split(os.pathsep) if _safe(one))


def environment() -> dict[str, str]:
    """The program's environment: programs that it starts are looked for in the same places."""
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
    """The current directory, unless it is the root or contains the person's home: then it is not a project."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:
        return "/nonexistent"
    home = os.path.realpath(os.path.expanduser("~"))
    return "/nonexistent" if here == "/" or home == here or home.startswith(f"{here}/") else here
