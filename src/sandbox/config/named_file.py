"""The files that runs were told to read (`--config`, `srt -s`), where tenants see them.

Such a file decides what tenants may do in the next run, so they cannot change it, nor read it when it holds a secret.
Later runs in the same place may name another file or none, so each is noted as a symbolic link in `~/.sandbox/named`.
"""

from __future__ import annotations

import os

from sandbox.config.glob_paths import escaped
from sandbox.config.home import home
from sandbox.config.paths import is_beneath
from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config, Filesystem

_PLAIN, _SECRET = "plain", "secret"  # the last parts of links' names


def keep_from_tenants(config: Config, file: str, said: Config) -> None:
    """Adds rules about `file` to `config`. `said` is what the file itself says."""
    path = os.path.realpath(file)
    if os.path.isfile(path):  # srt's default need not exist
        secret = said.plain() != said.whole()
        _add(config.filesystem, [(path, secret)])
        try:
            _note(path, secret)
        except OSError as problem:
            if os.access(home(), os.W_OK):  # the disk is full: a later run would not know the file
                raise SandboxError(
                    "cannot note in {directory} that {path} decides about sandboxes: {problem}",
                    directory=f"{home()}/named",
                    path=path,
                    problem=problem.strerror,
                ) from problem
            # Where the home cannot be written, nothing starts, and the reason is reported then.


def keep_noted_from_tenants(config: Config) -> None:
    """Adds rules about the files that earlier runs were told to read."""
    _add(config.filesystem, [(path, name.endswith(_SECRET)) for name, path in _noted() if os.path.isfile(path)])


def noted_after(moment: int, tree: str) -> list[str]:
    """The files in `tree` that runs were told to read for the first time after that moment (ns)."""
    found = []
    for name, path in _noted():
        try:
            noted = os.lstat(f"{home()}/named/{name}").st_ctime_ns
        except OSError:
            continue  # another run has just removed it
        if noted > moment and is_beneath(path, tree):
            found.append(path)
    return found


def _add(filesystem: Filesystem, files: list[tuple[str, bool]]) -> None:
    for path, secret in files:
        rule = escaped(path)
        if rule not in filesystem.deny_write:
            filesystem.deny_write = [*filesystem.deny_write, rule]
        if secret and rule not in filesystem.deny_read:
            filesystem.deny_read = [*filesystem.deny_read, rule]


def _note(path: str, secret: bool) -> None:
    noted = dict(_noted())
    ending = _SECRET if secret else _PLAIN
    if any(known == path and name.endswith(ending) for name, known in noted.items()):
        return
    for name, known in noted.items():
        if known == path or not os.path.lexists(known):
            os.unlink(f"{home()}/named/{name}")
    os.makedirs(f"{home()}/named", 0o700, exist_ok=True)
    os.symlink(path, f"{home()}/named/{os.urandom(8).hex()}-{ending}")


def _noted() -> list[tuple[str, str]]:
    """The names of the links, and where they lead."""
    place, found = f"{home()}/named", []
    try:
        names = os.listdir(place)
    except OSError:
        return []
    for name in names:
        try:
            found.append((name, os.readlink(f"{place}/{name}")))
        except OSError:
            pass  # another run has just removed it
    return found
