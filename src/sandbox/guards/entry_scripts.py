"""Files that a shell runs when a directory is entered (`.envrc` of direnv, `mise.toml`), and the files that they name.

The person has allowed them once, by path or by content. Whatever they source runs with them, at the next prompt, so it
is as good as they are. Virtual environments are left out: they are tenants' to change, as `docs/limits.md` says.
"""

from __future__ import annotations

import os
import re

from sandbox.guards.git_directories import content
from sandbox.guards.git_examination import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST = 1 << 16  # bytes that are read
# Their arguments are files, also without a slash.
SOURCING = frozenset(("source", ".", "source_env", "source_env_if_exists", "dotenv", "dotenv_if_exists"))
# `use nix`: what it evaluates, and where it keeps scripts that it sources the next time.
USES = {
    "flake": ("flake.nix", "flake.lock"),
    "nix": ("shell.nix", "default.nix"),
    "devenv": ("devenv.nix", "devenv.yaml", "devenv.lock"),
}
KEPT = (".direnv", ".devenv")
# An assignment names files as data, unless a command is run for it.
ASSIGNMENT = re.compile(r"(export\s+)?[A-Z_][A-Z0-9_]*\s*=(?!.*(\$\(|`))")


def named_by(path: str) -> Iterator[str]:
    """The paths that such a file names: files, whether they exist or not, and directories that it sources from."""
    around = os.path.dirname(path)
    text = (content(path, MOST) or b"").decode("latin-1")
    for line in text.split("\n"):
        line = line.strip()
        if line.startswith("#") or ASSIGNMENT.match(line):
            continue
        for word in dict.fromkeys(_files(line)):
            named = os.path.normpath(os.path.join(around, os.path.expanduser(word)))
            if not os.path.isdir(named) and not _is_installed(named, around):
                yield named
        used = line.split()[1:2] if line.startswith("use ") else []
        if used and used[0] in USES:
            yield from (f"{around}/{one}" for one in USES[used[0]])
            yield from (f"{around}/{one}" for one in KEPT if os.path.isdir(f"{around}/{one}"))


def _files(line: str) -> Iterable[str]:
    found = words(line)
    sourced = next((at + 1 for at, word in enumerate(found) if word in SOURCING), len(found))
    return (word for at, word in enumerate(found) if at >= sourced or "/" in word or word.startswith("./"))


def _is_installed(path: str, around: str) -> bool:
    """Whether it is in a virtual environment or among packages."""
    if "/node_modules/" in path:
        return True
    while path.startswith(f"{around}/"):
        path = os.path.dirname(path)
        if os.path.exists(f"{path}/pyvenv.cfg"):
            return True
    return False
