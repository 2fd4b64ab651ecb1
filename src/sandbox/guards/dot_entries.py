"""The home directory as the project: what begins with a dot there is a person's, not the project's.

Keys, tokens, histories, browsers' profiles and the settings of every program lie in dot entries of the home; no list of
them is ever whole. So all are hidden, as where the home is not the project: an empty directory of the sandbox's own for
each directory, an unreadable file for each file. Shown are what a repository in the home needs, the programs on PATH
(`toolchains.py`) and whatever `allow_read` or `allow_write` names.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What makes a directory a project, and holds no secret that other projects' would not.
SHOWN = frozenset(
    (".git", ".github", ".gitignore", ".gitattributes", ".gitmodules", ".editorconfig", ".venv", ".python-version",
     ".node-version", ".nvmrc", ".tool-versions")
)  # fmt: skip
# Of programs installed as snaps, with dot entries of their own; and macOS' `~/.*`.
NOT_DOTTED = frozenset(("snap", "Library"))
STAGE = "/.kept"


def hidden_in_home(home: str, named: Sequence[str]) -> tuple[list[str], list[str]]:
    """The directories and the files of `home` to be hidden. `named`: paths that are shown whatever they are."""
    directories: list[str] = []
    files: list[str] = []
    for entry in _entries(home):
        if entry.name in SHOWN or not (entry.name.startswith(".") or entry.name in NOT_DOTTED):
            continue
        if entry.path in named or entry.is_symlink():
            continue  # what a link leads to is hidden for itself, or is not there
        (directories if entry.is_dir(follow_symlinks=False) else files).append(entry.path)
    return sorted(directories), sorted(files)


def _entries(home: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(home) as entries:
            yield from entries
    except OSError:
        return  # then the walk covers it whole
