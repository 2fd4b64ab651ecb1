"""Where checkpoints are kept: `<home>/checkpoints/<name>/`, private to their owner.

    manifest.json   what it is, and the digest of everything else
    machine/        memory, processor and devices of a virtual machine
    layer/          the changes to the project
    places/0 …      what tenants wrote to the sandbox's own directories

A checkpoint is made under a hidden name and appears by one rename, when it is complete.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time

from sandbox.checkpoints.digest import digest
from sandbox.config.home import home
from sandbox.config.rmtree import remove_tree
from sandbox.config.state_names import plain_name
from sandbox.errors import InvalidArgument, NotFound, SandboxError
from sandbox.info import Checkpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MANIFEST = "manifest.json"
VERSION = 1
MOST = 64  # checkpoints of one user
SIZE_MOST = 64 << 30  # bytes of all of them together
MEMORY_PLACES = "/dev/shm"  # for an immediate fork, whose files only it needs
_MARK = "sandbox-fork"


def _directory() -> str:
    return os.path.join(home(), "checkpoints")


def check_name(name: str) -> str:
    """`name`, if it is a plain name. Raises InvalidArgument otherwise."""
    if not plain_name(name):
        raise InvalidArgument("{name!r} is not a name of letters, digits, `-`, `_` and `.`", name=name)
    return name


class UnfinishedCheckpoint:
    """A checkpoint that is being made. Leaving it without `finish` removes it."""

    def __init__(self, name: str | None) -> None:
        """Without a name it is for immediate forks: in memory if there is room, and never kept."""
        self.name = name
        self.path = self._temporary() if name is None else self._kept(check_name(name))

    def _kept(self, name: str) -> str:
        place = _directory()
        os.makedirs(place, 0o700, exist_ok=True)
        os.chmod(place, 0o700)
        if os.path.lexists(os.path.join(place, name)):
            raise SandboxError("there is a checkpoint {name} already; `sandbox checkpoints rm {name}`", name=name)
        found = checkpoints()
        if len(found) >= MOST or sum(one.size for one in found) >= SIZE_MOST:
            raise SandboxError(
                "there are too many checkpoints ({count}, {size} MB); `sandbox checkpoints rm` removes some",
                count=len(found),
                size=sum(one.size for one in found) >> 20,
            )
        return self._made(os.path.join(place, ".new"))

    def _temporary(self) -> str:
        place = MEMORY_PLACES
        try:
            space = os.statvfs(place)
            if space.f_bavail * space.f_frsize < 1 << 30:
                raise OSError
            return self._made(os.path.join(place, f"{_MARK}-{os.getuid()}"))
        except OSError:
            place = _directory()
            os.makedirs(place, 0o700, exist_ok=True)
            return self._made(os.path.join(place, ".new"))

    def _made(self, prefix: str) -> str:
        """A new directory, locked while its maker lives, so that `prune` leaves it alone."""
        while True:
            path = f"{prefix}-{os.getpid()}-{os.urandom(4).hex()}"
            os.mkdir(path, 0o700)
            self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.path.lexists(path):
                return path
            os.close(self._lock)  # pruned before it was locked

    def finish(self, about: dict[str, Any]) -> None:
        """Writes the manifest; a checkpoint with a name appears now. Raises SandboxError."""
        about |= {"version": VERSION, "created": time.time()}
        if self.name is not None:
            about["digest"] = _digest(self.path, about)
        with open(os.path.join(self.path, MANIFEST), "w", encoding="utf-8", opener=_private) as file:
            json.dump(about, file)
        if self.name is None:
            return
        try:
            os.rename(self.path, os.path.join(_directory(), self.name))
        except OSError:  # another process was faster
            raise SandboxError("there is a checkpoint {name} already", name=self.name) from None
        self.path = os.path.join(_directory(), self.name)

    def __enter__(self) -> UnfinishedCheckpoint:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is not None or self.name is None:
                _remove(self.path)
        finally:
            os.close(self._lock)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _digest(path: str, about: dict[str, Any]) -> str:
    import hashlib

    told = json.dumps({key: value for key, value in about.items() if key != "digest"}, sort_keys=True)
    return hashlib.sha256(f"{digest(path, MANIFEST)} {told}".encode()).hexdigest()


def load(name: str) -> tuple[str, dict[str, Any]]:
    """The directory of a checkpoint and the content of its manifest, after checking every byte of it.

    Raises NotFound, and SandboxError for a checkpoint that is damaged, or that somebody else could have written.
    """
    path = os.path.join(_directory(), check_name(name))
    about = _manifest(path)
    if about is None:
        raise NotFound("there is no checkpoint {name}; see `sandbox checkpoints list`", name=name)
    for one in (path, os.path.join(path, MANIFEST)):
        status = os.stat(one, follow_symlinks=False)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise SandboxError("the checkpoint {name} is not yours alone: it is not used", name=name)
    if about.get("version") != VERSION or about.get("digest") != _digest(path, about):
        raise SandboxError("the checkpoint {name} is damaged: it is not used", name=name)
    return path, about


def _manifest(path: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8") as file:
            about = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}


def checkpoints() -> list[Checkpoint]:
    """This user's checkpoints, newest first."""
    place = _directory()
    try:
        names = os.listdir(place)
    except OSError:
        return []
    found = []
    for name in names:
        about = _manifest(os.path.join(place, name)) if plain_name(name) else None
        if about is not None:
            found.append(described(name, os.path.join(place, name), about))
    return sorted(found, key=lambda one: -one.created)


def described(name: str, path: str, about: dict[str, Any]) -> Checkpoint:
    """A checkpoint as users and programs see it."""
    lost = about.get("lost")
    return Checkpoint(
        name,
        str(about.get("sandbox", "")),
        str(about.get("engine", "")),
        str(about.get("saves", "files")),
        _size(path),
        float(about.get("created", 0)),
        [str(one) for one in lost] if isinstance(lost, list) else [],
    )


def _size(path: str) -> int:
    return sum(
        os.lstat(os.path.join(parent, name)).st_blocks * 512 for parent, _, names in os.walk(path) for name in names
    )


def remove(name: str) -> None:
    """Deletes a checkpoint; sandboxes that were started from it keep running. Raises NotFound."""
    path = os.path.join(_directory(), check_name(name))
    hidden = os.path.join(_directory(), f".new-0-{os.urandom(4).hex()}")
    try:
        os.rename(path, hidden)  # in one step: nobody starts from half a checkpoint
    except FileNotFoundError:
        raise NotFound("there is no checkpoint {name}", name=name) from None
    _remove(hidden)


def prune() -> int:
    """Deletes what killed processes left behind. Returns how many directories there were."""
    count = 0
    for place, mark in ((_directory(), ".new"), (MEMORY_PLACES, f"{_MARK}-{os.getuid()}")):
        try:
            names = [name for name in os.listdir(place) if name.startswith(f"{mark}-")]
        except OSError:
            continue
        for name in names:
            path = os.path.join(place, name)
            if os.lstat(path).st_uid == os.geteuid() and _remove_abandoned(path):
                count += 1
    return count


def _remove_abandoned(path: str) -> bool:
    """Deletes it, unless it is still being made. Returns whether it did."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        _remove(path)
        return True
    finally:
        os.close(opened)


def _remove(path: str) -> None:
    try:
        remove_tree(path)
    except FileNotFoundError:
        pass
