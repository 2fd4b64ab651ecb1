"""Information that a sandbox gives about its files, processes, ports and use of the machine.

Each is a small object; `info.size` and `info["size"]` are the same, and `dict(info)` is plain data for JSON.
"""

from __future__ import annotations

import stat

from sandbox.fields import Fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class FileInfo(Fields):
    """A file inside. `kind` is "file", "directory", "symlink" or "other"; `mode` holds the permission bits."""

    __slots__ = ("name", "kind", "size", "mode", "mtime_ns")
    fields = ("name", "kind", "size", "mode", "is_dir", "mtime", "mtime_ns")

    def __init__(self, name: str, kind: str, size: int, mode: int, mtime_ns: int) -> None:
        self.name = name
        self.kind = kind
        self.size = size
        self.mode = mode
        self.mtime_ns = mtime_ns

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.kind == "directory"

    @property
    def mtime(self) -> float:
        """When its content last changed, in seconds since 1970."""
        return self.mtime_ns / 1_000_000_000


def kind_of(mode: int) -> str:
    """What a file is, by its mode as `stat(2)` gives it."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


class ProcessInfo(Fields):
    """A command that runs. `id` is unique in its sandbox; `keep` is the name it was kept under, or None."""

    __slots__ = fields = ("pid", "id", "command", "started", "keep", "tty")

    def __init__(self, pid: int, id: str, command: str, started: float, keep: str | None, tty: bool) -> None:
        self.pid = pid  # inside
        self.id = id
        self.command = command
        self.started = started  # seconds since 1970
        self.keep = keep
        self.tty = tty


class Port(Fields):
    """A port of the host, `address` and `port`, where connections reach the port `inside` the sandbox."""

    __slots__ = fields = ("address", "port", "inside")

    def __init__(self, address: str, port: int, inside: int) -> None:
        self.address = address
        self.port = port
        self.inside = inside


class Stats(Fields):
    """What a sandbox uses now. A field is None where this machine cannot tell."""

    __slots__ = fields = ("memory_bytes", "memory_peak_bytes", "cpu_ms", "processes", "lifetime_left")

    def __init__(
        self,
        memory_bytes: int | None = None,
        memory_peak_bytes: int | None = None,
        cpu_ms: int | None = None,
        processes: int | None = None,
        lifetime_left: float | None = None,
    ) -> None:
        self.memory_bytes = memory_bytes  # of all processes together
        self.memory_peak_bytes = memory_peak_bytes
        self.cpu_ms = cpu_ms  # user and system time, including processes that have ended
        self.processes = processes
        self.lifetime_left = lifetime_left  # seconds; None: it has no such limit


class Ask(Fields):
    """A question to the owner: may the sandbox reach a host (`kind` "host") or open a blocked file ("file")?

    `host`, `port`, and for HTTP `method` and `path` are what it wants to reach; for a file, `path` and `operation`.
    `program`, `exe` and `pid` say who asks, as far as known: a program inside chooses its own name. `text` is the
    question in English, safe to print. `answers` are the possible ones: "once", "sandbox", "always", "deny". `state` is
    "waiting", "allowed", "denied", "expired" or "withdrawn"; `answer` and `by` say what was answered, and by whom.
    """

    __slots__ = fields = (
        "id", "sandbox", "kind", "host", "port", "method", "path", "operation", "program", "exe", "pid", "text",
        "answers", "asked", "timeout", "state", "answer", "by",
    )  # fmt: skip

    def __init__(self, **told: Any) -> None:
        for name in self.fields:
            setattr(self, name, told.get(name))

    id: int
    sandbox: str
    kind: str
    host: str | None
    port: int | None
    method: str | None
    path: str | None
    operation: str | None
    program: str
    exe: str
    pid: int | None
    text: str
    answers: list[str]
    asked: float
    timeout: float
    state: str
    answer: str
    by: str


class Checkpoint(Fields):
    """A saved sandbox. `saves` is "machine" (memory, processes and files) or "files".

    `sandbox` is the id of the one that was saved; `lost` are the names of open files that no longer had a path.
    """

    __slots__ = fields = ("name", "sandbox", "engine", "saves", "size", "created", "lost")

    def __init__(
        self, name: str, sandbox: str, engine: str, saves: str, size: int, created: float, lost: list[str]
    ) -> None:
        self.name = name
        self.sandbox = sandbox
        self.engine = engine
        self.saves = saves
        self.size = size  # bytes on the disk
        self.created = created  # seconds since 1970
        self.lost = lost


class GrepMatch(Fields):
    """A line that matched: the file's `path`, the line's `number`, from 1, and its `text`."""

    __slots__ = fields = ("path", "number", "text")

    def __init__(self, path: str, number: int, text: str) -> None:
        self.path, self.number, self.text = path, number, text


class PatchedFile(Fields):
    """What a patch did to a file: "added", "updated" or "deleted" it (`change`), and where it moved, if it did."""

    __slots__ = fields = ("path", "change", "moved_to")

    def __init__(self, path: str, change: str, moved_to: str | None) -> None:
        self.path, self.change, self.moved_to = path, change, moved_to
