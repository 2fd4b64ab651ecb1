"""Covering a path in a running sandbox's mount namespace, from outside.

The owner of a user namespace may enter it, and with it the mount namespace it owns. That must be done by a
process with one thread, so it is a short-lived fork that does nothing but system calls, on what was prepared
before.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NS_GET_USERNS = 0xB701
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT = 428, 429, 430, 431, 432  # the same on all machines
OPEN_TREE_CLONE, FSCONFIG_CMD_CREATE = 1, 6
MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH = 0x4, 0x40
NOSUID, NODEV = 2, 4
O_PATH = 0o10000000
DONE, THERE, GONE = 0, 1, 2


def cover(namespace: int, paths: list[str]) -> Iterator[tuple[str, str | None]]:
    """Covers each path in the mount namespace. Yields (path, None) for one that was covered now, (path, "")
    for one that was covered already or is gone, (path, why) for one that could not be."""
    if not paths:
        return
    import ctypes
    import warnings

    libc = ctypes.CDLL(None, use_errno=True)
    names = [os.fsencode(path) for path in paths]
    reading, writing = os.pipe2(os.O_CLOEXEC)
    with warnings.catch_warnings():
        # Python warns of forking with threads, rightly: the child below touches none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            _in_child(libc, ctypes.get_errno, namespace, names, writing)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        data = answers.read()
    os.waitpid(child, 0)
    for at, path in enumerate(paths):
        code = data[at] if at < len(data) else 255
        yield (
            path,
            None if code == DONE else "" if code in (THERE, GONE) else os.strerror(code - 2 if code < 255 else 1),
        )


def _in_child(libc, errno, namespace: int, names: list[bytes], writing: int) -> None:  # type: ignore[no-untyped-def]
    """One byte of answer for each name: done, already covered, gone, or 2 + errno."""
    import fcntl

    owner = fcntl.ioctl(namespace, NS_GET_USERNS)
    libc.setns(owner, CLONE_NEWUSER)  # fails for root of the same user namespace, who needs no entering
    if libc.setns(namespace, CLONE_NEWNS) != 0:
        os.write(writing, bytes([2 + errno()] * len(names)))
        return
    fresh = libc.syscall(FSOPEN, b"tmpfs", 0)
    libc.syscall(FSCONFIG, fresh, FSCONFIG_CMD_CREATE, None, None, 0)
    place = libc.syscall(FSMOUNT, fresh, 0, NOSUID | NODEV)
    if place < 0:
        os.write(writing, bytes([2 + errno()] * len(names)))
        return
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0, dir_fd=place))
    os.mkdir("directory", 0, dir_fd=place)
    for name in names:
        os.write(writing, bytes([_one(libc, errno, place, name)]))


def _one(libc, errno, place: int, name: bytes) -> int:  # type: ignore[no-untyped-def]
    try:
        target = os.open(name, O_PATH | os.O_NOFOLLOW)
    except OSError:
        return GONE
    info = os.fstat(target)
    if info.st_mode & 0o777 == 0 and info.st_size == 0 and _covered(name, info.st_dev):
        return THERE
    kind = info.st_mode & 0o170000
    source = b"directory" if kind == 0o040000 else b"file"
    if kind == 0o120000:
        return GONE  # a link: what it leads to is covered by its own name
    tree = libc.syscall(OPEN_TREE, place, source, OPEN_TREE_CLONE)
    moved = libc.syscall(MOVE_MOUNT, tree, b"", target, b"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)
    return DONE if moved == 0 else 2 + int(errno())


def _covered(name: bytes, device: int) -> bool:
    """Whether something is mounted on the name: then it is on another device than the directory it is in."""
    return os.stat(os.path.dirname(name)).st_dev != device
