"""Ending sandboxes and deleting their entries: kill, remove, prune."""

from __future__ import annotations

import os

from sandbox.errors import SandboxError
from sandbox.registry.process_identity import identity
from sandbox.registry.registry import Entry, entries, names
from sandbox.registry.status import STOPPED, mark, stopped_at
from sandbox.sockets import connect_in

_LONGEST_ANSWER = 2**20  # bytes


def kill(entry: Entry, *, patience: float = 5.0) -> None:
    """Ends a running sandbox and returns when it has ended. Raises SandboxError when it is not running or does not end.

    Asks the owner first, because it may be a program that does other things as well. If that takes longer than
    `patience` seconds, sends SIGTERM, and after the same time again SIGKILL.
    """
    import signal

    from sandbox.host_process import ProcessHandle

    if entry.pid is None:
        raise SandboxError("{id} is not running; it is {status}", id=entry.id, status=entry.status)
    try:
        owner = ProcessHandle(entry.pid)
    except ProcessLookupError:
        return
    try:
        if not _is_same(entry) or _asked_to_close(entry, patience):
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            owner.send_signal(number)
            if owner.wait(patience):
                break
        else:
            raise SandboxError("{id} could not be ended: process {pid} is still there", id=entry.id, pid=entry.pid)
    except ProcessLookupError:
        pass
    finally:
        owner.close()
    mark(entry.path, STOPPED)


def remove(entry: Entry) -> None:
    """Deletes an ended sandbox's entry, and the changes it kept. Raises SandboxError while it is running."""
    if entry.running:
        raise SandboxError("{id} is running; stop it first: `sandbox kill {id}`", id=entry.id)
    remove_entry(entry.path)


def prune(home: str, *, changes_too: bool = False) -> tuple[list[str], list[str]]:
    """Deletes every entry that has ended, and half-made ones whose owner died.

    Returns the ids removed, and those kept because their overlay holds changes that nobody has applied or discarded
    (`changes_too` removes those as well). Other processes may start or prune at the same time.
    """
    removed, kept = [], []
    for entry in entries(home):
        if entry.running:
            continue
        if _holds_changes(entry.path) and not changes_too:
            kept.append(entry.id)
        elif remove_entry(entry.path):
            removed.append(entry.id)
    _clear_half_made(home)
    return removed, kept


def trim(home: str, keep: int) -> None:
    """Deletes the stopped entries that ended first, beyond `keep`. Crashed ones stay until `prune`.

    Reads only the status files: when it read whole entries, closing 1,000 sandboxes took 8 s, mostly here.
    """
    stopped: list[tuple[int, str]] = []
    for name in names(home):
        path = f"{home}/vms/{name}"
        ended = stopped_at(path)
        if ended is not None and not _holds_changes(path):
            stopped.append((ended, path))
    stopped.sort(reverse=True)
    for _, path in stopped[keep:]:
        remove_entry(path)


def _is_same(entry: Entry) -> bool:
    """Whether the pid, which our handle now pins, still belongs to the owner and was not reused."""
    try:
        with open(f"{entry.path}/pid", encoding="ascii") as file:
            return entry.pid is not None and identity(entry.pid) == file.read().partition("\n")[2].strip()
    except FileNotFoundError:
        return False  # it has ended, and its entry was removed


def _asked_to_close(entry: Entry, patience: float) -> bool:
    """Whether the owner says that it has closed the sandbox."""
    import socket
    import time

    until = time.monotonic() + patience
    id = f'"kill-{os.urandom(8).hex()}"'.encode()  # unlike any id in the events that come before the answer
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(patience)
        try:
            connect_in(line, entry.path, "socket")
            line.sendall(b'{"jsonrpc": "2.0", "method": "close", "params": {"grace": 0}, "id": %b}\n' % id)
            received = b""
            while True:
                line.settimeout(max(0.001, until - time.monotonic()))  # one limit for all reads together
                more = line.recv(65536)
                if not more or time.monotonic() > until:
                    return False
                *lines, received = (received + more).split(b"\n")
                received = received[-_LONGEST_ANSWER:]
                for one in lines:
                    if id in one:
                        return _succeeded(one)
        except OSError:
            return False


def _succeeded(answer: bytes) -> bool:
    import json

    try:
        read = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return isinstance(read, dict) and "result" in read and "error" not in read


def _holds_changes(path: str) -> bool:
    try:
        return bool(os.listdir(f"{path}/overlay/upper"))
    except OSError:
        return False


def remove_entry(path: str) -> bool:
    """Removes an entry: first from sight, by one rename, then its files. False when somebody else did so already."""
    parent, name = os.path.split(path)
    hidden = f"{parent}/.gone.{name.lstrip('.')}.{os.getpid()}"
    try:
        os.rename(path, hidden)
    except FileNotFoundError:
        return False
    _delete(hidden)
    return True


def _clear_half_made(home: str) -> None:
    """Deletes entries whose owner died while it made them, and the rest of interrupted removals."""
    try:
        names = os.listdir(f"{home}/vms")
    except FileNotFoundError:
        return
    for name in names:
        pid = name.rpartition(".")[2]
        if name.startswith(".") and pid.isascii() and pid.isdigit() and identity(int(pid)) is None:
            _delete(f"{home}/vms/{name}")


def _delete(path: str) -> None:
    from sandbox.config.rmtree import remove_tree

    try:
        remove_tree(path)
    except FileNotFoundError:
        pass  # another prune deletes the same directory
    except (OSError, RecursionError):
        # A tenant's layer may hold directories without permissions, or a million deep. coreutils handles both, and
        # neither program follows a symbolic link on the way.
        import subprocess

        system = {"PATH": "/usr/bin:/bin"}  # not the owner's PATH: a project's directory may come first in it
        subprocess.run(["chmod", "-R", "u+rwx", "--", path], env=system, stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["rm", "-rf", "--", path], env=system, check=False)
