"""Where to look for the host's programs that print secrets: never where a tenant can have put one.

A shell with a project's virtual environment has its `bin` on PATH, and tenants can write there. A `gh` that they left
there would run outside the walls. Light to import.
"""

from __future__ import annotations

import os

from sandbox.guards.written_places import written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def safe_path() -> str:
    """PATH without directories that are relative, in the current directory, ever written to by tenants, or made for a
    project: a virtual environment or `node_modules`, which may be a copy of one that tenants wrote to."""
    return os.pathsep.join(one for one in os.environ.get("PATH", os.defpath).split(os.pathsep) if _safe(one))


def of_tenants(command: Sequence[str], directory: str) -> str | None:
    """The first word of `command`, run in `directory`, that names something which a tenant can have written: a program,
    a script, a directory; also as `--option=path`. A program without a path is looked for on `safe_path`."""
    for at, word in enumerate(command):
        if at == 0 and "/" not in word:
            continue
        for one in (word, word.partition("=")[2]):
            path = os.path.join(directory, os.path.expanduser(one))
            if one and os.path.lexists(path) and _written(path):
                return word
    return None


def _written(path: str) -> bool:
    """Whether a tenant could have written the file, or the link at that path."""
    path = os.path.normpath(path)
    spelled = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return written(spelled) or written(os.path.realpath(path))


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
