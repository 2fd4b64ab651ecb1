"""Visits directories that tenants could write to, in which they may have left anything."""

from __future__ import annotations

import os
import stat

from sandbox.guards.git_directories import beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Tell = Callable[[str, str], object]

LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs", "bcachefs"))


def walk(
    top: str, tell: Tell, known: set[str] | frozenset[str] = frozenset(), links: list[str] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yields a directory and all below it that are not `known`, each with the names in it. Adds symbolic links to
    `links`. Directories that nobody may look into are open until the end of the walk."""
    waiting = [top]
    opened: list[tuple[str, int]] = []
    try:
        while waiting:
            directory = waiting.pop()
            names: list[str] = []
            try:
                entries = _entries(directory, opened)
            except OSError:
                if os.path.lexists(directory):
                    tell(directory, "")  # a tenant can hide from us what the host's git would still find by name
                continue
            for entry in entries:
                names.append(entry.name)
                if entry.path not in known and _is_directory(entry):
                    waiting.append(entry.path)
                elif links is not None and entry.is_symlink():
                    links.append(entry.path)
            yield directory, names
    finally:
        for directory, mode in reversed(opened):
            try:
                _set_mode(directory, mode)
            except OSError:
                pass  # it was moved aside


def changed(
    directories: Sequence[str], roots: Sequence[str], since: int, tell: Tell
) -> Iterator[tuple[str, list[str]]]:
    """Those of `directories`, parents first, in which something was created or moved since a time, and what is new
    below them, with the names in each."""
    local = local_devices()
    known = set(directories)
    led_out: set[str] = set()  # what a tenant has put a link in place of that leads out of what tenants write
    for directory in directories:
        try:
            info = os.lstat(directory)
        except OSError:
            continue
        is_out = stat.S_ISLNK(info.st_mode) and not beneath(os.path.realpath(directory), roots)
        if is_out or os.path.dirname(directory) in led_out:
            led_out.add(directory)
        elif info.st_ctime_ns >= since or info.st_dev not in local:
            yield from walk(directory, tell, known)


def attempt(tell: Tell, path: str, check: Callable[..., object], *given: object) -> None:
    """Calls `check`. What a tenant left to make it fail is reported, and the caller goes on with the rest."""
    try:
        check(*given)
    except Exception:  # noqa: BLE001 - not silently: the person and whoever reads the record learn of it
        tell(path, "")


def local_devices() -> set[int]:
    """Devices of file systems that use this machine's clock."""
    found = set()
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            before, _, after = line.partition(b" - ")
            if after.split(b" ", 1)[0].decode("ascii", "replace") in LOCAL:
                major, minor = before.split(b" ", 3)[2].split(b":")
                found.add(os.makedev(int(major), int(minor)))
    return found


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return True  # walking it reports it


def _entries(directory: str, opened: list[tuple[str, int]]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except PermissionError:
        opened.append((directory, _set_mode(directory, 0o700)))
        with os.scandir(directory) as entries:
            return list(entries)


def _set_mode(directory: str, mode: int) -> int:
    """Sets a directory's mode, and returns the one it had. Follows no link."""
    from sandbox.guards.nofollow import open_in_place

    place = open_in_place(directory)
    try:
        before = os.stat(place).st_mode & 0o7777
        os.chmod(f"/proc/self/fd/{place}", mode)
    finally:
        os.close(place)
    return before
