"""Covers a path in a running sandbox's mount namespace, or removes a cover, from outside.

The owner of a user namespace may enter it, and so the mount namespace that belongs to it. Only a process with a single
thread can do so. So a short-lived child process does it, which only makes system calls, on data prepared before.
"""

from __future__ import annotations

import errno
import os
import sys

from sandbox.policy.protected import RESERVED, RESERVED_DIRECTORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    _Identity = tuple[int, int]  # device and number

NS_GET_USERNS = 0xB701
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT = 428, 429, 430, 431, 432  # the same on all machines
OPEN_TREE_CLONE = 1
FSCONFIG_SET_STRING, FSCONFIG_CMD_CREATE = 1, 6
MOVE_MOUNT_EMPTY_PATHS = 0x4 | 0x40  # from and to are descriptors
RDONLY, NOSUID, NODEV = 1, 2, 4
AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_RECURSIVE = 0x100, 0x1000, 0x8000
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8
MS_REC, MS_PRIVATE = 0x4000, 0x40000
COVERS_MOST = 8  # on top of each other
MOUNT_SETATTR = 442
GIVEN = 0o1600  # the mode of our own file, which is mounted over one of the user's
OVERLAY = 0x794C7630  # the type of file system
COVERED_FILE = b"/proc/cmdline"  # in every place that has walls: layout.PROC_HIDDEN
O_PATH = 0o10000000
DONE, THERE, GONE, FAILED = 0, 1, 2, 3


def cover(
    namespace: int, paths: list[str], there: Mapping[str, bool] | None = None
) -> Iterator[tuple[str, str | None]]:
    """Covers each path in the mount namespace. Yields (path, None) if it was covered now, (path, "") if it was covered
    already or is gone, and (path, why) if it could not be covered.

    `there`: paths that exist on the host, and whether each is a directory. In an overlay the kernel may still answer
    that there is none, because a tenant has looked for the name before, and find it when it forgets that. An empty one
    in the upper layer then hides it for good."""
    names = [(os.fsencode(path), (there or {}).get(path)) for path in paths]
    answers = _entered(namespace, lambda calls, line: _cover_all(calls, names, line)) if names else []
    for at, path in enumerate(paths):
        code = answers[at][0][0] if at < len(answers) else FAILED
        why = "" if code in (THERE, GONE) else os.strerror(code - FAILED)
        yield path, None if code == DONE else why


def freeze(namespace: int, paths: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Makes each path read-only in the mount namespace, where it shows the host's file that `paths` says. Yields the
    same as `cover`."""
    names = {path: (os.fsencode(path), found) for path, host in paths.items() if (found := _identity(host))}
    answers = _entered(namespace, lambda calls, line: _freeze_all(calls, [*names.values()], line)) if names else []
    for at, path in enumerate(names):
        code = answers[at][0][0] if at < len(answers) else FAILED
        yield path, None if code == DONE else "" if code in (THERE, GONE) else os.strerror(code - FAILED)


def lift(namespace: int, path: str, writable: bool) -> str | None:
    """Removes the cover from `path` in the mount namespace; without `writable`, what was beneath it is read-only there.
    Returns None, or why that failed; then nothing is uncovered."""
    name = os.fsencode(path)
    answers = _entered(namespace, lambda calls, line: _lift(calls, name, writable, line))
    code = answers[0][0][0] if answers else FAILED
    if code in (THERE, GONE):
        return "there is no cover"
    return None if code == DONE else os.strerror(code - FAILED)


def beneath(namespace: int, path: str) -> int | None:
    """A descriptor (O_PATH) of what the cover at `path` hides, or None if it cannot be found. The cover stays."""
    name = os.fsencode(path)
    answers = _entered(namespace, lambda calls, line: _beneath(calls, name, line))
    return answers[0][1][0] if answers and answers[0][1] else None


class _Calls:
    """libc."""

    def __init__(self) -> None:
        import ctypes

        self.libc = ctypes.CDLL(None, use_errno=True)
        self.errno = ctypes.get_errno


def _entered(namespace: int, work: Callable[[_Calls, socket.socket], None]) -> list[tuple[bytes, list[int]]]:
    """Runs `work` in the mount namespace. Returns what it sent: each time a byte and perhaps a descriptor."""
    import fcntl
    import socket
    import warnings

    from sandbox.guest.frames import receive_some  # what it receives is not inherited by the next program started

    calls = _Calls()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with warnings.catch_warnings():
        # Python rightly warns about forking with threads. This child touches none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            ours.close()
            owner = fcntl.ioctl(namespace, NS_GET_USERNS)
            calls.libc.setns(owner, CLONE_NEWUSER)
            if calls.libc.setns(namespace, CLONE_NEWNS) == 0:
                work(calls, theirs)
        finally:
            os._exit(0)
    theirs.close()
    answers = []
    with ours:
        while True:
            data, fds = receive_some(ours, 16)
            if not data:
                break
            answers.append((data, fds))
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        pass  # the program we are part of reaps every child it sees
    return answers


def _cover_all(calls: _Calls, names: list[tuple[bytes, bool | None]], line: socket.socket) -> None:
    for name, is_dir in names:
        try:
            answer = _one(calls, name)
            if answer == GONE and is_dir is not None and _made(calls, name, is_dir):
                answer = _one(calls, name)
        except OSError as problem:  # the next names must be covered all the same
            away = problem.errno in (errno.ENOENT, errno.ENOTDIR)  # a directory above it was renamed meanwhile
            answer = GONE if away else FAILED + (problem.errno or errno.EIO)
        line.send(bytes([answer]))


def _freeze_all(calls: _Calls, names: list[tuple[bytes, _Identity]], line: socket.socket) -> None:
    for name, identity in names:
        try:
            # Another file there is not the host's: a layer of the tenants' own, or a newer one, of which we will hear.
            is_link, other = os.path.islink(name), _identity(name) != identity
            answer = THERE if other or os.statvfs(name).f_flag & os.ST_RDONLY else FAILED
        except OSError:
            is_link, answer = True, GONE
        if answer == FAILED:
            failed = 0 if is_link else _frozen(calls, name)
            answer = GONE if is_link or failed == errno.ENOENT else FAILED + failed if failed else DONE
        line.send(bytes([answer]))


def _identity(path: str | bytes) -> _Identity | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _made(calls: _Calls, name: bytes, is_dir: bool) -> bool:
    """Makes an empty file or directory at `name` if it is in an overlay. It is the upper layer's, and hides the host's.
    What tells others that it is no change of a tenant's is its mode."""
    try:
        parent = os.open(os.path.dirname(name), O_PATH | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        if not _in_overlay(calls, parent):
            return False
        if is_dir:
            os.mkdir(os.path.basename(name), RESERVED_DIRECTORY, dir_fd=parent)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            made = os.open(os.path.basename(name), flags, 0o600, dir_fd=parent)
            os.fchmod(made, RESERVED)
            os.close(made)
    except FileExistsError:
        return True  # a tenant's own
    except OSError:
        return False
    finally:
        os.close(parent)
    return True


def _in_overlay(calls: _Calls, directory: int) -> bool:
    import ctypes

    told = ctypes.create_string_buffer(256)  # struct statfs, which begins with the type
    if calls.libc.fstatfs(directory, told) != 0:
        return False
    return int.from_bytes(told.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) == OVERLAY


def _lift(calls: _Calls, name: bytes, writable: bool, line: socket.socket) -> None:
    line.send(bytes([_lifted(calls, name, writable)]))


def _lifted(calls: _Calls, name: bytes, writable: bool) -> int:
    try:
        info = os.lstat(name)
    except OSError:
        return GONE
    if info.st_mode & 0o777 or not _covered(name, info.st_dev):
        return THERE  # something other than a cover is mounted there, or nothing
    failed = _uncover(calls, name)
    if failed:
        return FAILED + failed
    failed = 0 if writable else _frozen(calls, name)
    if failed:
        _one(calls, name)
        return FAILED + failed
    return DONE


def _uncover(calls: _Calls, name: bytes) -> int:
    """Removes the cover at `name`: a tripwire has a plain cover beneath it. Returns 0 or an errno."""
    for _ in range(COVERS_MOST):
        info = os.lstat(name)
        if info.st_mode & 0o777 or not _covered(name, info.st_dev):
            return 0
        if calls.libc.umount2(name, MNT_DETACH | UMOUNT_NOFOLLOW) != 0:
            return int(calls.errno())
    return errno.EBUSY


def _beneath(calls: _Calls, name: bytes, line: socket.socket) -> None:
    """Looks in a copy of the mount namespace that nobody else is in."""
    import socket

    if calls.libc.unshare(CLONE_NEWNS) != 0 or calls.libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        return
    if _uncover(calls, name) == 0:
        socket.send_fds(line, [b"\0"], [os.open(name, O_PATH | os.O_NOFOLLOW)])


def _frozen(calls: _Calls, name: bytes) -> int:
    """Mounts what is at `name` read-only on itself. Returns 0 or an errno."""
    tree = calls.libc.syscall(OPEN_TREE, AT_FDCWD, name, OPEN_TREE_CLONE | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW)
    if tree < 0:
        return int(calls.errno())
    attributes = RDONLY.to_bytes(8, sys.byteorder) + bytes(24)
    changed = calls.libc.syscall(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH | AT_RECURSIVE, attributes, len(attributes))
    target = os.open(name, O_PATH | os.O_NOFOLLOW) if changed == 0 else -1
    moved = -1 if target < 0 else calls.libc.syscall(MOVE_MOUNT, tree, b"", target, b"", MOVE_MOUNT_EMPTY_PATHS)
    failed = 0 if moved == 0 else int(calls.errno())
    for fd in (tree, target):
        if fd >= 0:
            os.close(fd)
    return failed


def _one(calls: _Calls, name: bytes) -> int:
    """One byte of answer: done, already covered, gone, or FAILED + errno."""
    try:
        target = os.open(name, O_PATH | os.O_NOFOLLOW)
    except OSError:
        return GONE
    try:
        info = os.fstat(target)
        unreadable = info.st_mode & 0o777 == 0 and info.st_size == 0
        if (unreadable or info.st_mode & 0o7777 == GIVEN) and _covered(name, info.st_dev):
            return THERE
        kind = info.st_mode & 0o170000
        if kind == 0o120000:
            return GONE  # a link: its target is covered under its own name
        fresh = _directory(calls.libc) if kind == 0o040000 else _file(calls.libc)
        moved = calls.libc.syscall(MOVE_MOUNT, fresh, b"", target, b"", MOVE_MOUNT_EMPTY_PATHS)
        number = calls.errno()
        if fresh >= 0:
            os.close(fresh)
        if moved == 0:
            return DONE
        return GONE if number == errno.ENOENT else FAILED + number  # it was removed, or replaced by another
    finally:
        os.close(target)


def _file(libc: Any) -> int:
    """A copy of a mount that has covered a file since the start. (Before Linux 6.15 only an attached mount can be
    copied, and tenants would see a new one wherever it is attached.)"""
    tree: int = libc.syscall(OPEN_TREE, AT_FDCWD, COVERED_FILE, OPEN_TREE_CLONE)
    return tree


def _directory(libc: Any) -> int:
    """An empty, unreadable directory."""
    fresh = libc.syscall(FSOPEN, b"tmpfs", 0)
    libc.syscall(FSCONFIG, fresh, FSCONFIG_SET_STRING, b"mode", b"0", 0)
    libc.syscall(FSCONFIG, fresh, FSCONFIG_CMD_CREATE, None, None, 0)
    mount: int = libc.syscall(FSMOUNT, fresh, 0, RDONLY | NOSUID | NODEV)
    if fresh >= 0:
        os.close(fresh)
    return mount


def _covered(name: bytes, device: int) -> bool:
    """Whether something is mounted on the name: then its device differs from that of its directory."""
    return os.stat(os.path.dirname(name)).st_dev != device
