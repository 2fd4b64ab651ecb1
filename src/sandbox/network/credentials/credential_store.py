"""What `~/.sandbox/credentials` holds. It has mode 700 and is never visible inside.

key                  what placeholders are derived from
<name>@<project>.<format>  a login made inside, when the person's own file must not be changed
<name>@<project>.more      tokens of such a login that belong to no field of the file
<name>.<format>, .more     the same, which the person has shared with all projects
<digest>.lock        held while the tokens of one file are renewed
"""

from __future__ import annotations

import os

from sandbox.network.secrets.stored_key import directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class FileLock:
    """Held by one sandbox at a time among those that renew tokens of `file`. The kernel releases it when we die."""

    def __init__(self, file: str) -> None:
        import hashlib

        name = hashlib.sha256(os.path.realpath(file).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._fd = os.open(os.path.join(directory(), f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def tried(self) -> bool:
        """Whether we hold it now. Returns at once."""
        import fcntl

        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Releases it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def save(file: str, text: str, cover: Callable[[str], None] | None = None) -> None:
    """Replaces `file` with a single rename, keeping its mode and owner; a symbolic link is followed. Raises OSError and
    leaves the old file as it was. `cover` is called with the new file's name before anything is written to it."""
    file = os.path.realpath(file)
    try:
        old = os.stat(file)
    except FileNotFoundError:
        old = None
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    beside = f"{file}.{os.getpid()}.{os.urandom(4).hex()}"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as new:
            if cover is not None:
                cover(beside)
            new.write(text.encode())
            new.flush()
            if old is not None:
                if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(fd, old.st_uid, old.st_gid)
                os.fchmod(fd, old.st_mode & 0o7777)
            os.fsync(fd)
        os.rename(beside, file)
    except BaseException:
        os.unlink(beside)
        raise
    _sync(os.path.dirname(file))


def _sync(place: str) -> None:
    """Makes the rename survive a power failure."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError:
        pass  # not every file system supports this
    finally:
        os.close(fd)


def kept_as(name: str, project: str | None) -> str:
    """The first part of the names of files about a login made inside `project`, a word of `state/paths.py`."""
    return name if project is None else f"{name}@{project}"


def other_projects(name: str, format: str) -> bool:
    """Whether a login was made inside some project."""
    try:
        return any(one.startswith(f"{name}@") and one.endswith(f".{format}") for one in os.listdir(directory()))
    except OSError:
        return False


def share(name: str, project: str) -> bool:
    """Lets all projects use the login made inside `project`. False when there is none. Raises OSError."""
    mine, found = kept_as(name, project), False
    for file in os.listdir(directory()):
        if file.rpartition(".")[0] == mine:
            os.rename(os.path.join(directory(), file), os.path.join(directory(), name + file[len(mine) :]))
            found = True
    return found


MOST_MORE = 32


def more_tokens(name: str) -> dict[str, dict[str, object]]:
    """Tokens of logins made inside, by placeholder: value and hosts."""
    import json

    try:
        with open(os.path.join(directory(), f"{name}.more"), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def keep_more(name: str, placeholder: str, value: str, hosts: list[str]) -> None:
    """Stores a token. Only the latest MOST_MORE are kept."""
    import json

    known = more_tokens(name)
    known.pop(placeholder, None)
    known[placeholder] = {"value": value, "hosts": hosts}
    save(os.path.join(directory(), f"{name}.more"), json.dumps(dict(list(known.items())[-MOST_MORE:])))
