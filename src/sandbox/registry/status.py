"""The status of a registry entry: a file that holds one of three words."""

from __future__ import annotations

import os

# All three have seven letters: a status is overwritten in place, and a reader never finds the file empty.
RUNNING, STOPPED, CRASHED = "running", "stopped", "crashed"


def overwrite_status(directory: int, status: str) -> None:
    """Changes the status of the entry open as `directory`."""
    descriptor = os.open("status", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=directory)
    try:
        os.pwrite(descriptor, status.encode(), 0)
    finally:
        os.close(descriptor)


def mark(path: str, status: str) -> None:
    """Changes the status of the entry at `path`, whose owner is gone. Does nothing when the entry is gone too."""
    try:
        directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        overwrite_status(directory, status)
    except FileNotFoundError:
        pass
    finally:
        os.close(directory)
