"""An image on this machine: a directory with its files, and its configuration for running it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# An image comes from strangers: its configuration is used only within these limits.
MOST_WORDS, MOST_VARIABLES, LONGEST = 1000, 1000, 128 * 1024


class Image:
    """An image that can be shown at `/`. Nobody can remove it until `release` is called."""

    def __init__(self, name: str, root: str, said: Mapping[str, Any] | None = None, digest: str | None = None) -> None:
        """`said`: the `config` of an OCI image's configuration, written by the maker of the image."""
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
        """What `docker run` would run for `words`: the entry point with these arguments, or with the image's own."""
        return [*self.entrypoint, *(words or self.cmd)]

    def hold(self, lock: int) -> None:
        """Takes ownership of `lock`, a descriptor whose lock marks the image as in use."""
        self._held = lock

    def release(self) -> None:
        """Allows the image to be removed. Idempotent."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)


def for_start(said: Mapping[str, Any]) -> dict[str, object]:
    """The parts of an image's configuration that a start needs, validated."""
    return {
        "Entrypoint": words(said.get("Entrypoint")),
        "Cmd": words(said.get("Cmd")),
        "Env": [f"{name}={value}" for name, value in variables(said.get("Env")).items()],
        "User": text(said.get("User")),
        "WorkingDir": text(said.get("WorkingDir")),
    }


def words(said: object) -> list[str]:
    """`said`, if it is a valid list of arguments; else an empty list."""
    if not isinstance(said, list) or len(said) > MOST_WORDS:
        return []
    found = [text(one) for one in said]
    return found if all(isinstance(one, str) for one in said) else []


def text(said: object) -> str:
    """`said`, if it can be an argument or a path (no NUL, not too long, valid UTF-8); else an empty string."""
    if not isinstance(said, str) or "\0" in said or len(said) > LONGEST:
        return ""
    try:
        said.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can contain
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
