"""Finding profiles: a person's own (`~/.sandbox/profiles/NAME.yaml`) before those of the package."""

from __future__ import annotations

import os

from sandbox.config.home import home
from sandbox.config.state_names import plain_name
from sandbox.errors import ConfigError, NotFound
from sandbox.profiles.profile import Profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PACKAGED = os.path.join(os.path.dirname(__file__), "data")


def own_directory() -> str:
    """Where a person's own profiles are."""
    return os.path.join(home(), "profiles")


def file_of(name: str) -> str | None:
    """The file of the profile `name`; None when there is none."""
    if not plain_name(name):
        return None
    places = (os.path.join(own_directory(), f"{name}.yaml"), os.path.join(PACKAGED, f"{name}.json"))
    return next((one for one in places if os.path.exists(one)), None)


def names() -> list[str]:
    """The profiles that exist."""
    found = set()
    for directory, ending in ((own_directory(), ".yaml"), (PACKAGED, ".json")):
        if os.path.isdir(directory):
            found |= {name.removesuffix(ending) for name in os.listdir(directory) if name.endswith(ending)}
    return sorted(name for name in found if plain_name(name))


def load(name: str) -> Profile:
    """The profile `name`. Raises NotFound, or ConfigError with the file and line of a mistake."""
    file = file_of(name)
    if file is None:
        import difflib

        near = difflib.get_close_matches(name, names(), n=1)
        if near:
            raise NotFound("there is no profile {name!r}; did you mean {near!r}?", name=name, near=near[0])
        raise NotFound("there is no profile {name!r}; list them with `sandbox profile list`", name=name)
    return _packaged(file) if file.endswith(".json") else _own(file)


def _packaged(file: str) -> Profile:
    from sandbox.registry.json_text import decode  # neither `json` nor YAML: every start needs this

    with open(file, encoding="utf-8") as opened:
        data: Any = decode(opened.read())
    return Profile.read(data)


def _own(file: str) -> Profile:
    from sandbox.config import files

    source = files.read(file)
    assert source is not None
    try:
        found = Profile.read(source.data)
        if not found.program:
            raise ConfigError("is missing: the program's name", path="program")
    except ConfigError as problem:
        raise source.error(problem, problem.path, problem.at) from None
    return found
