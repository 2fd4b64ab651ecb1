"""What a clone has its kernel forget of the system's files that its template has in memory."""

from __future__ import annotations

import os

import pytest

from sandbox.engines.qemu.warm import stale

LIBRARIES = "/etc/ld.so.cache"


def record(number: int, parent: int, path: str, since: int = 0) -> bytes:
    """As the template's file server writes it, of a file that has changed `since` nanoseconds."""
    now = os.stat(path)
    times = f"{now.st_mtime_ns - since} {now.st_ctime_ns - since}"
    return f"{number} {parent} 1 {now.st_ino} {now.st_size} {times} {os.path.basename(path)}\0".encode()


def test_a_file_that_changed_is_forgotten_by_its_name() -> None:
    usr = record(2, 1, "/usr")
    assert stale(usr + record(3, 2, "/usr/bin")) == []
    assert stale(usr + record(3, 2, "/usr/bin", since=1)) == [[2, b"bin"]]


@pytest.mark.skipif(not os.path.exists(LIBRARIES), reason="no list of libraries")
def test_a_list_of_libraries_that_changed_is_forgotten_where_it_is_mounted_too() -> None:
    etc = record(2, 1, "/etc", since=1)  # the directory is every room's own
    assert stale(etc + record(3, 2, LIBRARIES)) == []
    assert stale(etc + record(3, 2, LIBRARIES, since=1)) == [[3, b""]]
