"""Rules that name paths (`deny_read`, the files of secrets), for a name that has just appeared.

A file that such a rule names may be made later, or be replaced by one that an editor saves or a program renews: that is
another file, on which nothing is mounted.
"""

from __future__ import annotations

import os

from sandbox.config.paths import is_beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sandbox.guards.covers import Covering


def cover_named_at(search: Covering, secrets: Mapping[str, str], path: str, is_dir: bool) -> None:
    """Covers what these rules name at `path` or in it. What has gone meanwhile needs no cover."""
    for entry in search.filesystem.deny_read:
        try:
            for asked, match in _named(search, entry, path, is_dir):
                kept = [one for one in search.allowed_back if is_beneath(one, match)]
                search.cover_around(match, kept, asked)
        except FileNotFoundError:
            continue
    for name, rule in secrets.items():
        if is_beneath(os.path.realpath(os.path.expanduser(name)), path):
            search.cover_secrets({name: rule})


def _named(search: Covering, entry: str, path: str, is_dir: bool) -> Iterator[tuple[str, str]]:
    """What an entry means that concerns `path`, as `Covering.expanded` yields it."""
    from sandbox.config.glob_paths import SIGNS, means

    spelled = search.absolute(entry)
    if not any(sign in entry for sign in SIGNS):
        real = os.path.realpath(spelled)
        if is_beneath(real, path) or is_beneath(path, real):
            yield from search.expanded(entry)
        return
    for one in (path, *(_below(path) if is_dir else ())):
        if means(spelled, one) and search.visible(one) and not os.path.islink(one):
            yield one, one


def _below(directory: str) -> Iterator[str]:
    for place, names, files in os.walk(directory):
        yield from (f"{place}/{name}" for name in (*names, *files))
