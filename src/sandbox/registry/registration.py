"""The registry entry of a running sandbox, written by its owner.

    ~/.sandbox/vms/vm-a1b2c3d4/
        pid           the owner's pid; on the second line when it was started (registry/process_identity.py)
        config.json   the configuration, without secrets; its first line is what `sandbox list` shows
        status        running, stopped or crashed
        created_at    Unix timestamp
        socket        JSON-RPC, for the same user only (rpc/listen.py)
        launch        for launchers, once a client has asked for one (rpc/launches.py)
        notes/        beside it: where else a command is to run (guest/launcher/protocol.md)
        logs/vm.log   output of a detached sandbox

An entry is prepared under a hidden name and appears by one rename, so no reader ever sees half of one; it disappears by
one rename too (registry/remove.py). Every mode is set explicitly, whatever the umask.
"""

from __future__ import annotations

import os

from sandbox.errors import Denied, SandboxError
from sandbox.registry.json_text import encode
from sandbox.registry.process_identity import identity
from sandbox.registry.status import RUNNING, STOPPED, overwrite_status
from sandbox.sockets import address_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SWITCH = "kill-switch"  # while there is such a file in the home, no sandbox starts: registry/kill_switch.py
_KEPT = 200  # stopped sandboxes that stay listed; older ones are deleted


class Registration:
    """Creates the entry; `end` closes it. Other processes may list, kill or prune at the same time."""

    def __init__(
        self, home: str, id: str, config: Mapping[str, object], command: Sequence[str | bytes] | None = None
    ) -> None:
        """Raises SandboxError when the registry cannot be written, Denied when the kill switch is pulled."""
        self.id = id
        self.home = home
        self.path = f"{home}/vms/{id}"
        self._owner = os.getpid()
        try:
            self._directory = _make(home, self.path, id, config, command)
        except OSError as problem:
            raise SandboxError(
                "cannot write {home}/vms: {reason}; set SANDBOX_HOME to a directory you can write to",
                home=home,
                reason=problem.strerror,
            ) from problem
        try:
            self.check_switch()  # after the entry exists: whoever pulls the switch now sees us
        except Denied:
            self.discard()
            raise

    def check_switch(self) -> None:
        """Raises Denied when the kill switch is pulled."""
        if os.access(f"{self.home}/{SWITCH}", os.F_OK):
            raise Denied(
                "kill-switch", "the kill switch is pulled; `sandbox panic --release` lets sandboxes start again"
            )

    @property
    def log(self) -> str:
        """Where a detached sandbox's output goes."""
        return f"{self.path}/logs/vm.log"

    @property
    def socket(self) -> str:
        """The address to listen on. Raises SandboxError where the registry's path is too long for one."""
        return self.beside("socket")

    def beside(self, name: str) -> str:
        """The address of another socket in the entry. Raises SandboxError where the path is too long for one."""
        return address_in(self.path, self._directory, name)

    def note(self, name: str, facts: Mapping[str, object]) -> None:
        """Adds a file with facts about the sandbox. Call it once for each name."""
        _write(self._directory, name, encode(dict(facts)))

    def notes(self) -> str:
        """Makes the directory in which clients leave notes for launchers. Raises OSError."""
        os.mkdir("notes", 0o700, dir_fd=self._directory)
        os.chmod("notes", 0o700, dir_fd=self._directory)
        return f"{self.path}/notes"

    def discard(self) -> None:
        """Removes the whole entry, because the sandbox did not start."""
        from sandbox.registry.remove import remove_entry

        self.end()
        remove_entry(self.path)

    def end(self, status: str = STOPPED) -> None:
        """Writes how it ended, and removes what only a running sandbox has. Idempotent."""
        directory, self._directory = self._directory, -1
        if directory < 0 or os.getpid() != self._owner:  # a forked child is not the owner
            return
        try:
            overwrite_status(directory, status)
            for name in ("pid", "socket", "launch"):
                try:
                    os.unlink(name, dir_fd=directory)
                except FileNotFoundError:
                    pass
            _remove_notes(directory)
        except OSError:
            pass  # somebody removed the entry by hand
        finally:
            os.close(directory)
        if self.id.endswith("0"):  # one sandbox in sixteen deletes old entries when it ends
            _trim(self.home)


def _remove_notes(entry: int) -> None:
    """After the launchers' socket: one that finds no note any more must not find that either. Raises OSError."""
    try:
        notes = os.open("notes", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=entry)
    except FileNotFoundError:
        return  # no client asked for a launcher
    try:
        for name in os.listdir(notes):
            os.unlink(name, dir_fd=notes)
    finally:
        os.close(notes)
    os.rmdir("notes", dir_fd=entry)


def _trim(home: str) -> None:
    """Deletes old entries. The more there are, the more rarely, so that ending a sandbox costs the same on average."""
    try:
        many = len(os.listdir(f"{home}/vms"))
    except OSError:
        return
    if many > _KEPT and int.from_bytes(os.urandom(2), "big") * many < 2**16 * 2 * _KEPT:
        from sandbox.registry.remove import trim

        trim(home, _KEPT)


def _make(home: str, path: str, id: str, config: Mapping[str, object], command: Sequence[str | bytes] | None) -> int:
    import time

    hidden = f"{home}/vms/.{id}.{os.getpid()}"
    try:
        _private_directory(hidden)
    except FileNotFoundError:
        for parent in (home, f"{home}/vms"):
            os.makedirs(parent, 0o700, exist_ok=True)
            os.chmod(parent, 0o700)
        _private_directory(hidden)
    directory = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.mkdir("logs", 0o700, dir_fd=directory)
        os.chmod("logs", 0o700, dir_fd=directory)
        _write(directory, "pid", f"{os.getpid()}\n{identity(os.getpid())}\n")
        now = int(time.time())
        _write(directory, "created_at", str(now))
        _write(directory, "status", RUNNING)
        _write(directory, "config.json", _described(config, command, now))
        os.rename(hidden, path)
    except BaseException:
        os.close(directory)
        raise
    return directory


def _described(config: Mapping[str, object], command: Sequence[str | bytes] | None, now: int) -> str:
    """The configuration, after a first line with all that `sandbox list` shows, so that it reads only that."""
    words = [os.fsdecode(word).encode("utf-8", "replace").decode() for word in command or ()]
    head = f'{{"image": {encode(config.get("image"))}, "command": {encode(words)}, "created_at": {now}'
    rest = "".join(f",\n{encode(key)}: {encode(value)}" for key, value in config.items() if key != "image")
    return f"{head}{rest}\n}}\n"


def _private_directory(path: str) -> None:
    os.mkdir(path, 0o700)
    os.chmod(path, 0o700)


def _write(directory: int, name: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        os.fchmod(descriptor, 0o600)
        left = memoryview(text.encode())
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)
