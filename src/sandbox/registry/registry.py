"""Reading the registry: which sandboxes exist, and their status.

Reading corrects entries: one that says "running" but whose owner has gone is marked "crashed".
"""

from __future__ import annotations

import os

from sandbox.errors import NotFound
from sandbox.registry.json_text import decode
from sandbox.registry.process_identity import Boot, identity
from sandbox.registry.status import CRASHED, RUNNING, STOPPED, mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe in place of a file must not block us
ORIGIN = "origin.json"  # which sandbox this one continues, if any
_LONGEST_PID = 10  # digits
_LATEST = 2**38  # the year 10680: a number that `time` can make a date of


class Entry:
    """One sandbox in the registry. `config`, `mounts` and `ports` are read when they are used."""

    __slots__ = ("id", "path", "status", "pid", "image", "created_at", "command", "identity")

    def __init__(self, id: str, path: str, status: str, pid: int | None, shown: dict[str, Any]) -> None:
        self.id = id
        self.path = path
        self.status = status
        self.pid = pid
        # The file may contain anything: one damaged entry must not hide the others.
        image, command, created_at = shown.get("image"), shown.get("command"), shown.get("created_at")
        self.image: str | None = image if isinstance(image, str) else None
        self.command: list[str] = list(map(str, command)) if isinstance(command, list) else []
        self.created_at: int = created_at if isinstance(created_at, int) and 0 <= created_at < _LATEST else 0

    def __repr__(self) -> str:
        return f"Entry({self.id!r}, {self.status!r}, pid={self.pid})"

    @property
    def running(self) -> bool:
        return self.status == RUNNING

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, without secrets."""
        with open(f"{self.path}/config.json", encoding="utf-8") as file:
            described = _parsed(file.read())
        return {key: value for key, value in described.items() if key not in ("command", "created_at")}

    @property
    def mounts(self) -> dict[str, object]:
        """How each further directory is served, by its path inside."""
        try:
            with open(f"{self.path}/mounts.json", encoding="utf-8") as file:
                return _parsed(file.read())
        except FileNotFoundError:
            return {}

    @property
    def ports(self) -> list[dict[str, Any]]:
        """The ports of the host that are published, while it runs: `address`, `port`, `inside`."""
        if not self.running:
            return []
        try:
            with open(f"{self.path}/ports.json", encoding="utf-8") as file:
                published = _parsed(file.read()).get("ports")
        except FileNotFoundError:
            return []
        return published if isinstance(published, list) else []

    @property
    def family(self) -> str:
        """The id of the first sandbox that this one descends from: its own, unless it is a fork, was restored, or
        replaced a managed sandbox."""
        try:
            with open(f"{self.path}/{ORIGIN}", encoding="utf-8") as file:
                first = _parsed(file.read()).get("family")
        except FileNotFoundError:
            return self.id
        return first if isinstance(first, str) and first else "?"  # damaged: nobody gets fresh limits

    @property
    def log(self) -> str:
        return f"{self.path}/logs/vm.log"

    @property
    def socket(self) -> str:
        return f"{self.path}/socket"

    def plain(self) -> dict[str, Any]:
        """What `sandbox get` and `sandbox list --json` show, without the configuration."""
        return {
            "id": self.id,
            "status": self.status,
            "pid": self.pid,
            "image": self.image,
            "created_at": _iso(self.created_at),
            "command": self.command,
            "ports": self.ports,
        }


def entries(home: str) -> list[Entry]:
    """Every sandbox, the newest first."""
    boot = Boot()
    found = [entry for name in names(home) if (entry := _read(f"{home}/vms/{name}", name, boot)) is not None]
    found.sort(key=lambda entry: (-entry.created_at, entry.id))
    return found


def find(home: str, wanted: str, may_see: Callable[[str], bool] = lambda id: True) -> Entry:
    """The sandbox whose id is or begins with `wanted` (with or without "vm-"). To who may not see one, there is none.
    Raises NotFound."""
    matching = [name for name in names(home) if name.startswith((wanted, f"vm-{wanted}")) and may_see(name)]
    if wanted in matching:
        matching = [wanted]
    if not wanted or not matching:
        raise NotFound("no sandbox {wanted!r}; see `sandbox list`", wanted=wanted)
    if len(matching) > 1:
        raise NotFound(
            "{wanted!r} matches {matching}; give more of the id",
            wanted=wanted,
            matching=", ".join(sorted(matching)),
        )
    entry = _read(f"{home}/vms/{matching[0]}", matching[0], Boot())
    if entry is None:
        raise NotFound("no sandbox {wanted!r}: it has just been removed", wanted=wanted)
    return entry


def names(home: str) -> Iterator[str]:
    """The ids of all entries, in no order."""
    try:
        listed = os.listdir(f"{home}/vms")
    except FileNotFoundError:
        return
    for name in listed:
        # A leading dot: being created or removed. Our own names contain no control characters.
        if name.startswith("vm-") and name.isprintable():
            yield name


def _read(path: str, name: str, boot: Boot) -> Entry | None:
    """The entry at `path`, or None if there is no entry."""
    try:
        status, pid = _state(path, boot)
        first_line, more, _ = _text(f"{path}/config.json", 1024).partition("\n")
        if not more:  # a long command
            first_line = _text(f"{path}/config.json", 2**24).partition("\n")[0]
    except NotADirectoryError:
        return None
    if not first_line and not os.path.isdir(path):
        return None
    return Entry(name, path, status, pid, _parsed(first_line.rstrip(",") + "}"))


def _state(path: str, boot: Boot) -> tuple[str, int | None]:
    status = _text(f"{path}/status")
    if status in (STOPPED, CRASHED):
        return status, None
    pid, _, started = _text(f"{path}/pid").partition("\n")
    if pid.isascii() and pid.isdigit() and len(pid) <= _LONGEST_PID and identity(int(pid), boot.id) == started.strip():
        return RUNNING, int(pid)
    # The owner writes its last status before it ends, so now that it is gone, what the file says is final.
    status = _text(f"{path}/status")
    if status == STOPPED:
        return status, None
    mark(path, CRASHED)
    return CRASHED, None


def _text(path: str, most: int = 256) -> str:
    try:
        descriptor = os.open(path, _OPEN)
    except NotADirectoryError:
        raise
    except OSError:
        return ""
    try:
        return os.read(descriptor, most).decode("utf-8", "replace")
    except OSError:  # not a file, or an empty pipe
        return ""
    finally:
        os.close(descriptor)


def _parsed(text: str) -> dict[str, Any]:
    try:
        parsed = decode(text)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _iso(timestamp: int) -> str:
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(timestamp))
