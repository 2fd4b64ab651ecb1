"""An image on this machine: a directory with its files, and what it says about how to run it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# An image is somebody else's: what it says is used as far as this.
MOST_WORDS, MOST_VARIABLES, LONGEST = 1000, 1000, 128 * 1024


class Image:
    """An image that can stand at `/`. `release` gives it back: until then nobody removes it."""

    def __init__(self, name: str, root: str, said: Mapping[str, Any] | None = None, digest: str | None = None) -> None:
        """`said`: the `config` of an OCI image's configuration, from whoever made the image."""
        said = said or {}
        self.name = name
        self.root = root  # a directory, by its real path
        self.digest = digest  # of an OCI manifest, or of an archive; None for a directory
        self.entrypoint = words(said.get("Entrypoint"))
        self.cmd = words(said.get("Cmd"))
        self.environment = variables(said.get("Env"))
        self.user = text(said.get("User"))
        self.workdir = text(said.get("WorkingDir"))
        self._held: int | None = None

    def command(self, words: list[str]) -> list[str]:
        """What `docker run` would run for `words`: the entry point with these arguments, or with its own."""
        return [*self.entrypoint, *(words or self.cmd)]

    def hold(self, lock: int) -> None:
        """`lock`: a descriptor whose lock says that the image is in use."""
        self._held = lock

    def release(self) -> None:
        """Idempotent."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)


def for_start(said: Mapping[str, Any]) -> dict[str, object]:
    """What a start needs of an image's configuration, in a form that is known to be good."""
    return {
        "Entrypoint": words(said.get("Entrypoint")),
        "Cmd": words(said.get("Cmd")),
        "Env": [f"{name}={value}" for name, value in variables(said.get("Env")).items()],
        "User": text(said.get("User")),
        "WorkingDir": text(said.get("WorkingDir")),
    }


def words(said: object) -> list[str]:
    """A list of arguments, if it is one."""
    if not isinstance(said, list) or len(said) > MOST_WORDS:
        return []
    found = [text(one) for one in said]
    return found if all(isinstance(one, str) for one in said) else []


def text(said: object) -> str:
    """A text that can be an argument or a path: without NUL, not too long, and UTF-8."""
    if not isinstance(said, str) or "\0" in said or len(said) > LONGEST:
        return ""
    try:
        said.encode()
    except UnicodeEncodeError:  # half a character, which JSON can spell
        return ""
    return said


def variables(said: object) -> dict[str, str]:
    """Variables from a list of `NAME=VALUE`."""
    found: dict[str, str] = {}
    for one in words(said)[:MOST_VARIABLES]:
        name, equals, value = one.partition("=")
        if name and equals:
            found[name] = value
    return found
