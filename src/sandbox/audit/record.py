"""The record on disk: one file of JSON lines that every sandbox of a user appends to, chained by hashes.

    audit.jsonl                the newest lines
    audit-000000000001.jsonl   older files, named for their first line
    head                       number and hash of the last line, length of audit.jsonl; also the writers' lock

Every write happens under a lock on `head` and first compares the file with it. So concurrent sandboxes never mix
lines, a line torn by a crash is repaired by the next writer, and a record that was cut short is noticed.
"""

from __future__ import annotations

import fcntl
import os
import time
from _thread import allocate_lock as Lock  # `threading` is loaded later: see `wiring.py`

from sandbox.audit import chain, entry
from sandbox.audit.feed import feed
from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.audit.entry import Plain

CURRENT = "audit.jsonl"
HEAD = "head"
_NEXT = f"{CURRENT}.next"  # while it is made
_HEAD_SIZE = 128
ROTATE_SIZE = 64 * 2**20


class Head:
    """The state of the chain: last number, its hash, length of the current file, how often it was rotated."""

    __slots__ = ("number", "digest", "size", "generation")

    def __init__(self, number: int = 0, digest: str = chain.FIRST, size: int = 0, generation: int = 0) -> None:
        self.number = number
        self.digest = digest
        self.size = size
        self.generation = generation

    def pack(self) -> bytes:
        return f"{self.number} {self.digest} {self.size} {self.generation}".encode().ljust(_HEAD_SIZE - 1) + b"\n"

    @classmethod
    def unpack(cls, data: bytes) -> Head | None:
        """None if `data` is not a valid head; then the record itself is read."""
        parts = data.split()
        if len(parts) != 4 or len(parts[1]) != 64 or not all(parts[at].isdigit() for at in (0, 2, 3)):
            return None
        return cls(int(parts[0]), parts[1].decode("ascii", "replace"), int(parts[2]), int(parts[3]))


class Record:
    """Writes one sandbox's entries. Safe to use from many threads and beside any number of other processes."""

    def __init__(
        self, directory: str, *, sandbox: str = "", agent: str | None = None, rotate_size: int = ROTATE_SIZE
    ) -> None:
        """Opens the record, or creates it. Raises SandboxError if neither is possible."""
        self.directory = directory
        self.sandbox = sandbox
        self.agent = agent
        self._rotate_size = rotate_size
        self._lock = Lock()
        self._directory = self._head = self._log = -1
        self._open()

    def write(
        self,
        type: str,
        summary: str,
        *,
        severity: str = "info",
        metadata: Mapping[str, Plain] | None = None,
        trace_id: str | None = None,
        agent: str | None = None,
        operation: str | None = None,
        target: str | None = None,
        result: str | None = None,
        policy: str | None = None,
        reason: str | None = None,
        sync: bool = False,
    ) -> None:
        """Appends one entry. With `sync`, it is on disk on return. Raises SandboxError if it cannot be written."""
        entry.check(type, severity, result)
        fields = {
            "timestamp": entry.timestamp(time.time()),
            "type": type,
            "severity": severity,
            "summary": summary,
            "sandbox": self.sandbox or None,
            "agent": agent or self.agent,
            "operation": operation,
            "target": target,
            "result": result,
            "policy": policy,
            "reason": reason,
            "traceId": trace_id,
        }
        try:
            with self._lock:
                self._append(entry.line(fields, metadata), sync)
        except OSError as problem:
            raise SandboxError(
                "cannot write the record in {directory}: {problem}", directory=self.directory, problem=problem
            ) from problem
        feed.publish(_published(fields, metadata))

    def close(self) -> None:
        """Closes the descriptors. Idempotent."""
        with self._lock:
            self._release()

    # -- under the lock

    def _release(self) -> None:
        for descriptor in (self._log, self._head, self._directory):
            if descriptor >= 0:
                os.close(descriptor)
        self._directory = self._head = self._log = -1

    def _open(self) -> None:
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            self._directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if os.fstat(self._directory).st_mode & 0o077:
                os.fchmod(self._directory, 0o700)
            self._head = self._open_file(HEAD, os.O_RDWR)
            self._log = self._open_file(CURRENT, os.O_RDWR | os.O_APPEND)
        except OSError as problem:
            self._release()
            raise SandboxError(
                "cannot open the record in {directory}: {problem}; set SANDBOX_HOME or "
                "audit.directory to a directory you can write to",
                directory=self.directory,
                problem=problem,
            ) from problem
        self._pid = os.getpid()
        self._generation = -1

    def _open_file(self, name: str, flags: int) -> int:
        # O_NOFOLLOW: do not follow a link that somebody planted under this name.
        flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=self._directory)

    def _append(self, body: str, sync: bool) -> None:
        if self._pid != os.getpid():
            self._release()  # after a fork the lock would be shared with the parent, not exclusive
            self._open()
        if self._log < 0:
            raise SandboxError("the record is closed")
        fcntl.flock(self._head, fcntl.LOCK_EX)
        try:
            head = self._ready()
            if head.size >= self._rotate_size:
                head = self._rotate(head)
            self._write_line(head, body)
            if sync:
                os.fsync(self._log)
        finally:
            fcntl.flock(self._head, fcntl.LOCK_UN)

    def _ready(self) -> Head:
        """The head, made to agree with the file after a rotation by others, a crash or tampering."""
        head = Head.unpack(os.pread(self._head, _HEAD_SIZE, 0))
        lost = head is None and self._begun()
        if head is None or head.generation != self._generation:
            self._continue_in(self._open_file(CURRENT, os.O_RDWR | os.O_APPEND))
            head = head or self._rebuilt()
            self._generation = head.generation
        size = os.fstat(self._log).st_size
        if size != head.size:
            head = self._repaired(head, size)
        if lost:
            head = self._write_line(head, _note("the head of the record was missing or damaged", "critical"))
        return head

    def _begun(self) -> bool:
        """Whether there are lines, so that there must have been a head."""
        names = os.listdir(self._directory)
        if any(name.startswith("audit-") for name in names):
            return True
        return CURRENT in names and os.stat(CURRENT, dir_fd=self._directory, follow_symlinks=False).st_size > 0

    def _continue_in(self, log: int) -> None:
        """The new descriptor exists before the old one is closed: its number could be another file's after an error."""
        old, self._log = self._log, log
        os.close(old)

    def _rebuilt(self) -> Head:
        """A head made from the last valid line of the record, for when there is no head file."""
        head = Head()
        data = os.pread(self._log, os.fstat(self._log).st_size, 0)
        for line in data.splitlines(keepends=True):
            found = chain.opened(line.decode("ascii", "replace")) if line.endswith(b"\n") else None
            if found is not None:
                head = Head(found[1], found[2], head.size + len(line), 0)
        head.size = min(head.size, len(data))
        return head

    def _repaired(self, head: Head, size: int) -> Head:
        if size < head.size:
            if size and os.pread(self._log, 1, size - 1) != b"\n":
                size += os.write(self._log, b"\n")  # cut within a line: the note begins another one
            head.size = size
            return self._write_line(head, _note("the record was cut short", "critical"))
        data = os.pread(self._log, size - head.size, head.size)
        kept = 0
        for line in data.splitlines(keepends=True):
            found = chain.opened(line.decode("ascii", "replace")) if line.endswith(b"\n") else None
            if found is None or not chain.follows(found[0], found[2], head.digest):
                break
            head.number, head.digest = found[1], found[2]
            kept += len(line)
        head.size += kept
        rest = data[kept:]
        if not rest:
            return head
        if b"\n" not in rest:  # cut off by a crash: half a line is useless and would make the next one invalid
            os.ftruncate(self._log, head.size)
            note = _note(f"a line torn by a crash was removed ({len(rest)} bytes)", "warn")
        else:  # not written by us, so left alone; `verify` reports it
            if not rest.endswith(b"\n"):
                os.write(self._log, b"\n")
            head.size = os.fstat(self._log).st_size
            note = _note("something else was written into the record", "critical")
        return self._write_line(head, note)

    def _write_line(self, head: Head, body: str) -> Head:
        line, digest = chain.sealed(body, head.number + 1, head.digest)
        data = line.encode("ascii")
        written = os.write(self._log, data)
        if written != len(data):  # the disk is full: remove the half line
            os.ftruncate(self._log, head.size)
            raise OSError(28, "No space left on device")
        head.number, head.digest, head.size = head.number + 1, digest, head.size + written
        os.pwrite(self._head, head.pack(), 0)
        return head

    def _rotate(self, head: Head) -> Head:
        """Gives the current file its final name. The chain continues in a new file."""
        first = chain.opened(os.pread(self._log, 2**20, 0).split(b"\n", 1)[0].decode("ascii", "replace"))
        number = first[1] if first else head.number
        new = self._open_file(_NEXT, os.O_RDWR | os.O_APPEND | os.O_TRUNC)  # first: it may fail
        try:
            for name, becomes in ((CURRENT, f"audit-{number:012}.jsonl"), (_NEXT, CURRENT)):
                os.rename(name, becomes, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except BaseException:
            os.close(new)
            raise
        self._continue_in(new)
        self._generation = head.generation + 1
        head = Head(head.number, head.digest, 0, self._generation)
        os.pwrite(self._head, head.pack(), 0)
        return head


def _published(fields: Mapping[str, object], metadata: Mapping[str, Plain] | None) -> dict[str, object]:
    """An entry as subscribers of the feed see it."""
    told = {name: value for name, value in fields.items() if value is not None}
    return {**told, "metadata": dict(metadata)} if metadata else told


def _note(summary: str, severity: str) -> str:
    """An entry about the record itself."""
    stamp = entry.timestamp(time.time())
    fields = {"timestamp": stamp, "type": "policy_decision", "severity": severity, "summary": summary}
    return entry.line(fields, None)
