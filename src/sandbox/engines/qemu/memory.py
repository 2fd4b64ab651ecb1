"""A machine's memory, read from QEMU's process: the file it started from, with the pages changed since."""

from __future__ import annotations

import ctypes
import mmap
import os
import re

from sandbox.checkpoints.trees import copy_content
from sandbox.errors import WallError

PAGE = mmap.PAGESIZE
# The last byte of an entry of /proc/PID/pagemap: present or swapped out, and neither file-backed nor shared.
PRIVATE = re.compile(rb"[\x40-\x5f\x80-\x9f\xc0-\xdf]+")
AT_ONCE = 1 << 20


def copy_memory(room: int, base: int, to: str, size: int) -> None:
    """Writes the memory of the machine in the room of the guest `room` to the new file `to`.

    QEMU is the process there that maps the open file `base`, which the machine was started from. Raises WallError when
    this user may not read its memory, as where the kernel forbids all tracing.
    """
    try:
        pid, start = _mapped(room, base, size)
        runs = _changed(pid, start, size)
        target = os.open(to, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            copy_content(base, target)
            _copy_changed(pid, start, runs, target)
        finally:
            os.close(target)
    except OSError as problem:
        raise WallError("the machine's memory cannot be read: {problem}", problem=problem.strerror) from None


def _mapped(room: int, base: int, size: int) -> tuple[int, int]:
    """QEMU's process, and where the file is mapped in it."""
    from sandbox.host_process import descendants

    status = os.fstat(base)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    for pid in descendants(room):
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                span, _, offset, where, inode, *_ = line.split()
                first, last = (int(one, 16) for one in span.split("-"))
                if (where, int(inode), int(offset, 16)) == (device, status.st_ino, 0) and last - first == size:
                    return pid, first
    raise WallError("QEMU does not have the machine's memory where it should be")


def _changed(pid: int, start: int, size: int) -> list[tuple[int, int]]:
    """The runs of pages that differ from the file, as byte offsets from the start."""
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        entries = bytearray()
        while len(entries) < size // PAGE * 8:
            piece = os.pread(file.fileno(), size // PAGE * 8 - len(entries), start // PAGE * 8 + len(entries))
            if not piece:
                raise WallError("the machine's memory cannot be read: {problem}", problem="pagemap")
            entries += piece
    return [(run.start() * PAGE, run.end() * PAGE) for run in PRIVATE.finditer(bytes(entries[7::8]))]


def _copy_changed(pid: int, start: int, runs: list[tuple[int, int]], target: int) -> None:
    """Copies with several threads, in pieces that fit a processor's cache."""
    from concurrent.futures import ThreadPoolExecutor

    pieces = [(at, min(at + AT_ONCE, last)) for first, last in runs for at in range(first, last, AT_ONCE)]
    workers = min(4, os.cpu_count() or 1)
    shares = [pieces[number::workers] for number in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda share: _copy_pieces(pid, start, share, target), shares))


def _copy_pieces(pid: int, start: int, pieces: list[tuple[int, int]], target: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    room = mmap.mmap(-1, AT_ONCE)
    view = memoryview(room)
    here = ctypes.addressof(ctypes.c_char.from_buffer(room))
    for first, last in pieces:
        while first < last:
            local, remote = _Span(here, last - first), _Span(start + first, last - first)
            got = library.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
            if got <= 0:
                raise OSError(ctypes.get_errno() or 14, os.strerror(ctypes.get_errno() or 14))
            os.pwrite(target, view[:got], first)
            first += got


class _Span(ctypes.Structure):
    """struct iovec"""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))
