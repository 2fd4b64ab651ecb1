"""When the home directory is the project: entries that begin with a dot belong to the person, not to the project.

Keys, tokens, histories, browser profiles and the settings of every program are in dot entries of the home directory,
and no list of them is ever complete. So all of them are hidden: a directory by an empty one, a file by an unreadable
one. What a repository in the home needs stays visible, as do the programs on PATH (`toolchains.py`) and whatever
`allow_read` or `allow_write` names.
"""

from __future__ import annotations

import os

from sandbox.config.paths import is_beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What makes a directory a project. These hold no secrets that another project would not hold too.
SHOWN = frozenset(
    (".git", ".github", ".gitignore", ".gitattributes", ".gitmodules", ".editorconfig", ".venv", ".python-version",
     ".node-version", ".nvmrc", ".tool-versions")
)  # fmt: skip
# Snaps keep dot entries of their own here; on macOS many programs do.
NOT_DOTTED = frozenset(("snap", "Library"))
STAGE = "/.kept"


def hidden_in_home(home: str, named: Sequence[str]) -> tuple[list[str], list[str]]:
    """The directories and the files of `home` to hide. `named`: paths that stay visible in any case."""
    directories: list[str] = []
    files: list[str] = []
    for entry in _dotted(home, named):
        if not entry.is_symlink():
            (directories if entry.is_dir(follow_symlinks=False) else files).append(entry.path)
    return sorted(directories), sorted(files)


def hidden_behind_links(home: str, named: Sequence[str]) -> list[str]:
    """What dot entries that are links lead to in `home`, as with a directory of dot files that is kept elsewhere
    (`.netrc -> dotfiles/netrc`). What contains, or is in, a `named` path stays visible."""
    found = set()
    for entry in _dotted(home, named):
        real = os.path.realpath(entry.path) if entry.is_symlink() else home
        if real == home or not is_beneath(real, home) or not os.path.exists(real):
            continue
        if not any(one != home and (is_beneath(one, real) or is_beneath(real, one)) for one in named):
            found.add(real)
    return sorted(found)


def _dotted(home: str, named: Sequence[str]) -> Iterator[os.DirEntry[str]]:
    for entry in _entries(home):
        is_dotted = entry.name.startswith(".") or entry.name in NOT_DOTTED
        if is_dotted and entry.name not in SHOWN and entry.path not in named:
            yield entry


def _entries(home: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(home) as entries:
            yield from entries
    except OSError:
        return  # then the walk covers it whole
