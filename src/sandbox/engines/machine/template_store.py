"""Templates on disk: checking that one is complete, making one at a time, and removing unused ones.

For each file, the manifest has its identity (inode, size, and change time, which only the kernel sets) and a hash of
its content. A file with the same identity is the one that was hashed. A file with another identity, as after the cache
was copied, is hashed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time

from sandbox.config.home import cache_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MANIFEST = "manifest.json"
HALF_MADE = ".new-"
UNUSED_SECONDS = 14 * 86400
BLOCK = 1 << 20


def templates() -> str:
    """The directory of all templates."""
    return os.path.join(cache_directory(), "templates")


def named(told: Sequence[object], files: Sequence[str], *, processor: bool) -> str:
    """The directory of the template made from these settings and files and, with `processor`, for the host's
    processor."""
    states = ((path, os.stat(path)) for path in files)
    of_files = [[path, one.st_size, one.st_mtime_ns, one.st_ino] for path, one in states]
    everything = [*told, of_files, _processor() if processor else []]
    name = hashlib.sha256(json.dumps(everything).encode()).hexdigest()[:32]
    return os.path.join(templates(), name)


def _processor() -> list[str]:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        return [line for line in file if line.startswith(("model name", "flags", "microcode"))][:3]


def keep(directory: str, names: tuple[str, ...], make: Callable[[str], None]) -> None:
    """Makes sure that `directory` exists and is good. If not, `make` fills a new one, which then replaces it."""
    if is_good(directory, names):
        return
    place = os.path.dirname(directory)
    os.makedirs(place, mode=0o700, exist_ok=True)
    with locked(place):
        if is_good(directory, names):  # another process may have made it meanwhile
            return
        shutil.rmtree(directory, ignore_errors=True)
        work = tempfile.mkdtemp(prefix=HALF_MADE, dir=place)
        try:
            make(work)
            write_manifest(work, names)
            os.rename(work, directory)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise


class locked:
    """One maker at a time. The lock is released when the process ends."""

    def __init__(self, place: str) -> None:
        self._file = os.path.join(place, "lock")

    def __enter__(self) -> None:
        import fcntl

        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def write_manifest(directory: str, names: tuple[str, ...]) -> None:
    """Writes the manifest of a complete directory."""
    manifest = {name: {"identity": _identity(directory, name), "sha256": _hash(directory, name)} for name in names}
    _replace(directory, manifest)


def is_good(directory: str, names: tuple[str, ...]) -> bool:
    """Whether only its owner can access it, and every file is as it was when it was made."""
    try:
        with open(os.path.join(directory, MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
        status = os.stat(directory)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077 or set(manifest) != set(names):
            return False
        moved = [name for name in names if manifest[name]["identity"] != _identity(directory, name)]
        if any(manifest[name]["sha256"] != _hash(directory, name) for name in moved):
            return False
        if moved:
            write_manifest(directory, names)
        if time.time() - status.st_mtime > 3600:
            os.utime(directory)  # it is in use: see `prune`
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def prune(place: str) -> list[str]:
    """Removes templates unused for two weeks, and what killed makers left behind. Returns their names.

    A running machine has its template's files open and is not affected; a checkpoint's template is made again.
    """
    if not os.path.isdir(place):
        return []
    removed = []
    with locked(place):  # so nobody makes one at this moment
        for entry in os.scandir(place):
            if not entry.is_dir(follow_symlinks=False):
                continue
            unused = time.time() - entry.stat(follow_symlinks=False).st_mtime > UNUSED_SECONDS
            if unused or entry.name.startswith(HALF_MADE):
                shutil.rmtree(entry.path, ignore_errors=True)
                removed.append(entry.name)
    return removed


def _identity(directory: str, name: str) -> list[int]:
    status = os.lstat(os.path.join(directory, name))
    return [status.st_ino, status.st_size, status.st_ctime_ns]


def _hash(directory: str, name: str) -> str:
    """A hash of the size, and of every block that is not empty: memory files are mostly holes."""
    total = hashlib.sha256()
    fd = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size, at = os.fstat(fd).st_size, 0
        total.update(b"%d" % size)
        while at < size:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA) // BLOCK * BLOCK
            except OSError:
                break  # the rest is a hole
            piece = os.pread(fd, BLOCK, at)
            if piece.strip(b"\0"):
                total.update(b"|%d|" % at + piece)
            at += BLOCK
    finally:
        os.close(fd)
    return total.hexdigest()


def _replace(directory: str, manifest: object) -> None:
    path = os.path.join(directory, MANIFEST)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(manifest, file)
    os.replace(f"{path}.new", path)
