"""Which program in a sandbox holds the other end of a connection, seen from outside.

The sandbox's network namespace lists its connections with their inodes (`/proc/PID/net/tcp`), and one of its processes
holds a descriptor for that inode. Best effort: a process may have ended, or passed its descriptor on. A program chooses
its own name.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import TYPE_CHECKING

from sandbox.asks.question import Requester
from sandbox.host_process import descendants

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_PROCESSES = 1024
MOST_DESCRIPTORS = 1024  # of each
MOST_TABLE = 2**21  # bytes


def requester(guest: int | None, client: socket.socket) -> Requester:
    """Who holds the other end of `client`. `guest` is a process of the sandbox that all others descend from."""
    if guest is None:
        return Requester()
    try:
        here, there = client.getsockname()[:2], client.getpeername()[:2]
        inode = _inode(guest, there, here)
        return _holder(guest, f"socket:[{inode}]") if inode is not None else Requester()
    except (OSError, ValueError, struct.error):
        return Requester()


def _inode(guest: int, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    wanted = {(a, b) for a in _spelled(*local) for b in _spelled(*remote)}
    for name in ("tcp", "tcp6"):
        for line in _lines(f"/proc/{guest}/net/{name}"):
            fields = line.split()
            if len(fields) > 9 and (fields[1], fields[2]) in wanted and fields[9].isdigit() and fields[9] != "0":
                return int(fields[9])
    return None


def _spelled(address: str, port: int) -> list[str]:
    """An address as the kernel writes it in these tables: 32-bit words in the machine's own order."""
    if ":" in address:
        raw = [socket.inet_pton(socket.AF_INET6, address.partition("%")[0])]
        mapped = raw[0][:12] == b"\0" * 10 + b"\xff\xff"
        raw += [raw[0][12:]] if mapped else []
    else:
        four = socket.inet_aton(address)
        raw = [four, b"\0" * 10 + b"\xff\xff" + four]
    order = "<" if sys.byteorder == "little" else ">"
    words = ("".join(f"{word:08X}" for (word,) in struct.iter_unpack(f"{order}I", one)) for one in raw)
    return [f"{one}:{port:04X}" for one in words]


def _lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            return file.read(MOST_TABLE).decode("ascii", "replace").splitlines()[1:]
    except OSError:
        return []


def _holder(guest: int, link: str) -> Requester:
    for pid in descendants(guest, MOST_PROCESSES):
        if any(held == link for held in _descriptors(pid)):
            return Requester(_comm(pid), _exe(pid), _inside(pid))
    return Requester()


def _descriptors(pid: int) -> Iterator[str]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names[:MOST_DESCRIPTORS]:
        try:
            yield os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue


def _comm(pid: int) -> str:
    with open(f"/proc/{pid}/comm", "rb") as file:
        return file.read(64).decode("utf-8", "backslashreplace").removesuffix("\n")


def _exe(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _inside(pid: int) -> int | None:
    """Its number in the sandbox's own pid namespace: the innermost one."""
    with open(f"/proc/{pid}/status", "rb") as file:
        found = [line.split() for line in file.read(2**14).splitlines() if line.startswith(b"NSpid:")]
    return int(found[0][-1]) if found else None
