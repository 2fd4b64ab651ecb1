"""The status of a registry entry: a file that holds one of three words."""

from __future__ import annotations

import os

# All three have seven letters: a status is overwritten in place, and a reader never finds the file empty.
RUNNING, STOPPED, CRASHED = "running", "stopped", "crashed"


def overwrite_status(directory: int, status: str) -> None:
    """Changes the status of the entry open as `directory`."""
    descriptor = os.open("status", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    try:
        os.pwrite(descriptor, status.encode(), 0)
    finally:
        os.close(descriptor)


def mark(path: str, status: str) -> None:
    """Changes the status of the entry at `path`, whose owner is gone. Does nothing when the entry is gone or damaged.

    Raises NotADirectoryError.
    """
    try:
        directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        overwrite_status(directory, status)
    except OSError:
        pass  # it does not exist, is not a file, or is not ours to write: leave it alone
    finally:
        os.close(directory)


def stopped_at(path: str) -> int | None:
    """When the entry at `path` was marked stopped, in nanoseconds; None when it says something else, or is gone."""
    try:
        descriptor = os.open(f"{path}/status", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        stopped = os.read(descriptor, 16) == STOPPED.encode()
        return os.fstat(descriptor).st_mtime_ns if stopped else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
