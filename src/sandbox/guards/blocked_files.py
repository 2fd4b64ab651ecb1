"""The list of every file that was ever blocked. Wherever such a file is moved or linked, later runs block it too.

A cover is a mount on a name. While the sandbox lives it follows renames. But after a tenant has renamed a directory,
the next run may find the file at a path that no rule names (`deny_read: [src/x/d.txt]`) or that is excepted
(`node_modules/sub/.env`). So each covered file is listed here by inode number and birth time, in a file outside the
project that no tenant can reach. Each start compares inode numbers, which listing a directory yields at no extra cost.

An entry keeps the path that the *rule* names. If the file is still at that path and no rule blocks it any more, its
owner has changed the rules, and it is free. Anywhere else it stays blocked, unless `allow_read` names exactly it.

`changed` (ctime) only saves time: a file with the same inode number and ctime is the same file.
"""

from __future__ import annotations

import os
from _struct import Struct, error  # type: ignore[attr-defined]  # typeshed has `error` in `struct`

from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 20_000
FORGET_AFTER = 30  # days without finding a file in the trees where it was
_MAGIC = b"blocked1"
_COUNT = Struct("<Q")
_RECORD = Struct("<QqQqI")


def _born(path: str) -> int:
    from sandbox.guards.birth_time import born  # seldom needed, and every start would load it

    return born(path)


class BlockedFile:
    """One file or directory. `missed`: the day on which it was first not found, or 0."""

    __slots__ = ("inode", "born", "device", "changed", "missed", "rule", "path")

    def __init__(self, inode: int, born: int, device: int, changed: int, missed: int, rule: str, path: str) -> None:
        self.inode = inode
        self.born = born
        self.device = device
        self.changed = changed
        self.missed = missed
        self.rule = rule
        self.path = path

    @property
    def key(self) -> tuple[int, int]:
        """Identifies the file. Device numbers can change at a reboot, so they only replace a missing birth time."""
        return (self.inode, self.born or -self.device)


class NotRemembered(SandboxError):
    """Which files are blocked could not be written down: a later run would not know them under another name."""


class BlockedFiles:
    """One user's list. Reading needs no lock, because the file is only ever replaced as a whole."""

    def __init__(self, home: str) -> None:
        """Raises SandboxError when the file is damaged: a guess could unblock something."""
        self._home = home
        self._file = f"{home}/blocked"
        self.inodes: dict[int, list[BlockedFile]] = {}
        self._new: list[BlockedFile] = []  # added or changed, not yet written
        self._gone: set[tuple[int, int]] = set()
        self._met: set[tuple[int, int]] = set()
        for entry in self._read():
            self.inodes.setdefault(entry.inode, []).append(entry)

    # -- reading

    def known(self, path: str, info: os.stat_result) -> BlockedFile | None:
        """The entry for the file at `path`, if it was ever blocked."""
        entries = self.inodes.get(info.st_ino, ())
        found = next((one for one in entries if one.changed == info.st_ctime_ns), None)
        if entries and found is None:
            try:
                key = (info.st_ino, _born(path) or -info.st_dev)
            except OSError:
                return None  # gone since
            found = next((one for one in entries if one.key == key), None)
        if found is not None:
            self._is_there(found, info.st_ctime_ns)
        return found

    # -- adding

    def add(self, path: str, info: os.stat_result, rule: str, named: str | None = None) -> bool:
        """Adds the file at `path`, which a rule blocks under the path `named`. True when it is new."""
        entry = self.known(path, info)
        if entry is not None:
            if named is not None and entry.path == path:
                entry.path = named
                self._new.append(entry)
            return False
        try:
            moment = _born(path)
        except OSError:
            return False  # gone since
        entry = BlockedFile(info.st_ino, moment, info.st_dev, info.st_ctime_ns, 0, rule, named or path)
        # The inode number was reused: the file that had it before no longer exists.
        old = [one for one in self.inodes.get(entry.inode, ()) if one.device == entry.device]
        self._gone.update(one.key for one in old)
        self.inodes[entry.inode] = [one for one in self.inodes.get(entry.inode, ()) if one not in old] + [entry]
        self._new.append(entry)
        self._met.add(entry.key)
        return True

    def _is_there(self, entry: BlockedFile, changed: int) -> None:
        self._met.add(entry.key)
        if entry.changed != changed or entry.missed:
            entry.changed, entry.missed = changed, 0
            self._new.append(entry)

    def searched(self, roots: Iterable[str], today: int) -> None:
        """Call it after searching all of `roots`. Entries from there that were not found are dropped in time."""
        tops = tuple(f"{root.rstrip('/')}/" for root in roots)
        for entries in self.inodes.values():
            for entry in entries:
                if entry.key in self._met or not entry.path.startswith(tops):
                    continue
                if not entry.missed:
                    entry.missed = today
                    self._new.append(entry)
                elif today - entry.missed > FORGET_AFTER:
                    self._gone.add(entry.key)

    # -- saving

    def save(self) -> bool:
        """Writes what is new, merged with what other sandboxes have written. False when there are too many entries.

        Raises NotRemembered when that fails: no tenant may run before the list is written.
        """
        if not (self._new or self._gone):
            return True
        import fcntl

        try:
            os.makedirs(self._home, 0o700, exist_ok=True)
            lock = os.open(f"{self._file}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                entries = {one.key: one for one in self._read()}
                for key in self._gone:
                    entries.pop(key, None)
                entries.update((one.key, one) for one in self._new)
                kept = self._bounded(list(entries.values()))
                self._write(kept)
            finally:
                os.close(lock)
        except OSError as problem:
            raise NotRemembered(
                "cannot write {home}: {reason}; set SANDBOX_HOME to a directory you can write to",
                home=self._home,
                reason=problem.strerror,
            ) from problem
        whole = len(kept) == len(entries)
        self._new, self._gone = [], set()
        return whole

    @staticmethod
    def _bounded(entries: list[BlockedFile]) -> list[BlockedFile]:
        """Drops entries that were not found lately. If there are still too many, it drops those of files that tenants
        may have made (they can make any number), and then the newest."""
        if len(entries) > MOST:
            entries = [one for one in entries if not one.missed]
        if len(entries) > MOST:
            from sandbox.guards.written_places import first_written

            since = first_written()
            entries.sort(
                key=lambda one: any(
                    one.path.startswith(top) and (one.born or one.changed) > time for top, time in since
                )
            )
        return entries[:MOST]

    def _read(self) -> list[BlockedFile]:
        try:
            with open(self._file, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise SandboxError("cannot read {file}: {reason}", file=self._file, reason=problem.strerror) from problem
        try:
            if not data.startswith(_MAGIC):
                raise ValueError
            start = len(_MAGIC) + _COUNT.size
            (count,) = _COUNT.unpack_from(data, len(_MAGIC))
            end = start + count * _RECORD.size
            words = os.fsdecode(data[end:]).split("\0")
            if len(words) != 2 * count + 1:
                raise ValueError
            records = _RECORD.iter_unpack(data[start:end])
            return [
                BlockedFile(inode, moment, device, changed, missed, words[2 * at], words[2 * at + 1])
                for at, (inode, moment, device, changed, missed) in enumerate(records)
            ]
        except (ValueError, error):
            raise SandboxError(
                "{file} is damaged. It lists the files that were ever blocked. If you remove it, "
                "blocked files that were moved since are no longer blocked",
                file=self._file,
            ) from None

    def _write(self, entries: list[BlockedFile]) -> None:
        records = b"".join(_RECORD.pack(one.inode, one.born, one.device, one.changed, one.missed) for one in entries)
        words = "".join(f"{one.rule}\0{one.path}\0" for one in entries)
        temporary = f"{self._file}.new"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(_MAGIC + _COUNT.pack(len(entries)) + records + os.fsencode(words))
        os.rename(temporary, self._file)
