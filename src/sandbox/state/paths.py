"""Where kept directories are: `state/NAME/PROJECT/home` under the sandbox home, or `state/NAME/shared/home`.

`state/NAME/PROJECT/project-state` has the layers over directories of the project (`layout/project_state.py`)."""

from __future__ import annotations

import os

from sandbox.config.home import home as sandbox_home
from sandbox.config.paths import is_beneath
from sandbox.errors import ConfigError, SandboxError
from sandbox.state.writing import make_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import State

SHARED = "shared"


def directory(state: State, project: str) -> str:
    """The directory that holds this state. It need not exist. Raises ConfigError without a name."""
    if state.name is None:
        raise ConfigError("needs `state.name`, which names their owner", path="state.keep")
    return os.path.join(sandbox_home(), "state", state.name, project_word(project) if state.per_project else SHARED)


def project_word(project: str) -> str:
    """A readable name that no other project has, not even a later one at the same path: that one must not get what a
    tenant left for the earlier one."""
    from _blake2 import blake2s  # `hashlib` takes a millisecond to import

    from sandbox.guards.birth_time import born

    try:
        moment = born(project)
    except OSError:
        moment = 0
    last = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in os.path.basename(project))
    digest = blake2s(os.fsencode(project) + (b"\0%d" % moment if moment else b"")).hexdigest()
    return f"{last[:32].strip('-') or 'project'}-{digest[:16]}"


def kept(state: State, project: str) -> list[tuple[str, str]]:
    """The kept directories, made if need be: where each is on the host, and where tenants see it.

    Raises SandboxError when a tenant has put a link in the way: what it leads to is not kept."""
    inside = os.path.realpath(os.path.expanduser("~"))
    top = make(state, project)
    found = []
    for path in outermost(state.keep):
        host = os.path.normpath(f"{top}/{path}")
        try:
            make_directory(top, os.path.normpath(path))
        except OSError as problem:
            raise SandboxError(
                "{path} cannot be kept: a program inside has put something else in its place ({problem}); "
                "look at it, then remove it, or everything with `sandbox profile forget {name}`",
                path=host,
                problem=problem.strerror,
                name=state.name,
            ) from problem
        found.append((host, os.path.normpath(f"{inside}/{path}")))
    return found


def make(state: State, project: str) -> str:
    """The home that is kept, made if need be, with a mode that lets only the owner in."""
    place = directory(state, project)
    _private(f"{place}/home")
    note = f"{place}/project"
    if state.per_project and not os.path.exists(note):
        with open(note, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{project}\n")
    return f"{place}/home"


def had_before(state: State, project: str) -> bool:
    """Whether something is kept for a directory that was at this path before."""
    here = directory(state, project)
    above = os.path.dirname(here)
    for name in os.listdir(above) if state.per_project else ():
        if f"{above}/{name}" == here:
            continue
        try:
            with open(f"{above}/{name}/project", encoding="utf-8", errors="surrogateescape") as file:
                if file.read() == f"{project}\n":
                    return True
        except OSError:
            pass
    return False


def of_gone_projects(name: str) -> list[tuple[str, str]]:
    """What is kept under `name` for projects that are gone: each project, and the directory that is kept for it."""
    above = os.path.join(sandbox_home(), "state", name)
    found = []
    for word in sorted(os.listdir(above)):
        try:
            with open(f"{above}/{word}/project", encoding="utf-8", errors="surrogateescape") as file:
                project = file.read().removesuffix("\n")
        except OSError:
            continue  # shared, or of no project
        if not os.path.isdir(project) or project_word(project) != word:
            found.append((project, f"{above}/{word}"))
    return found


def of_project(state: State, project: str) -> str:
    """The directory for what tenants write to directories of the project (`state.project`), made if need be. It is that
    project's alone, even where the home is shared. Raises ConfigError without a name."""
    if state.name is None:
        raise ConfigError("needs `state.name`, which names their owner", path="state.project")
    place = os.path.join(sandbox_home(), "state", state.name, project_word(project), "project-state")
    _private(place)
    return place


def _private(directory: str) -> None:
    """Makes a directory and those above it, each for the owner alone: `os.makedirs` does that for the last one only."""
    if not os.path.isdir(directory):
        _private(os.path.dirname(directory))
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            pass


def own_word(name: str) -> str:
    """Twenty random letters and digits, the same in every run with the state `name`.

    Programs remember the key that they may use by its last characters, so its placeholder must not change."""
    place = os.path.join(sandbox_home(), "state", name)
    file = f"{place}/word"
    try:
        with open(file, encoding="ascii") as opened:
            return opened.read(20)
    except FileNotFoundError:
        from sandbox.config.atomic_write import write_whole

        word = os.urandom(10).hex()
        _private(place)
        write_whole(file, word)
        return word


def outermost(paths: list[str]) -> list[str]:
    """Those that lie in no other one: tenants write to the outer one, so none of our paths may lead through it."""
    found: list[str] = []
    for path in sorted(dict.fromkeys(paths), key=lambda one: (one != ".", one.split("/"))):
        if not any(outer == "." or is_beneath(path, outer) for outer in found):
            found.append(path)
    return found
