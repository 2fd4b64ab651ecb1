"""Symbolic links that tenants can have made on the way to a path that the person's configuration names.

Who follows such a link goes where a tenant wants: another directory of the person's is shown inside, or written to.
"""

from __future__ import annotations

import os

from sandbox.config.paths import is_beneath
from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_LINKS = 40  # as many as the kernel follows


def planted_link(path: str, trees: Sequence[str] = ()) -> str | None:
    """The first link on the way of `path` that lies where tenants write, or ever wrote, and leads out of there; None if
    there is none. `trees`: real paths of further directories that count as such."""
    from sandbox.guards.written_places import tree_of

    place, rest, links = "/", os.path.abspath(os.path.expanduser(path)).split("/"), 0
    while rest:
        part = rest.pop(0)
        if part == "..":
            place = os.path.dirname(place)
        if part in ("", ".", ".."):
            continue
        here = os.path.join(place, part)
        try:
            target = os.readlink(here)
        except OSError:
            place = here  # no link, or nothing there
            continue
        links += 1
        tree = next((one for one in trees if is_beneath(place, one)), None) or tree_of(place)
        if links > MOST_LINKS or (tree is not None and not is_beneath(os.path.realpath(here), tree)):
            return here
        rest = target.split("/") + rest
        if target.startswith("/"):
            place = "/"
    return None


def refuse_planted(path: str, key: str, trees: Sequence[str] = ()) -> None:
    """Raises ConfigError, about the setting `key`, if there is such a link on the way of `path`."""
    link = planted_link(path, trees)
    if link is not None:
        raise ConfigError(
            "{link!r} is a link out of a directory that sandboxes write to, and one of them may have made it; name "
            "what it leads to",
            link=link,
            path=key,
        )
