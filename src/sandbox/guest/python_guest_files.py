"""The file operations of `guest/protocol.md`, in Python: each a function from its request to its answer."""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Answer = tuple[dict[str, object], list[int]]

MOST_ENTRIES = 40_000  # a frame has room for these, unless the names are long
PIECE = 2**20


def _open(request: dict[str, Any]) -> Answer:
    flags = int(request["flags"]) | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    return {}, [os.open(request["path"], flags, int(request.get("mode", 0o644)))]


def _stat(request: dict[str, Any]) -> Answer:
    info = os.stat(request["path"], follow_symlinks=bool(request.get("follow")))
    return {
        "mode": info.st_mode,
        "size": info.st_size,
        "mtime_ns": info.st_mtime_ns,
        "uid": info.st_uid,
        "gid": info.st_gid,
        "nlink": info.st_nlink,
        "ino": info.st_ino,
    }, []


def _mkdir(request: dict[str, Any]) -> Answer:
    mode = int(request.get("mode", 0o755))
    if request.get("parents"):
        os.makedirs(request["path"], mode, exist_ok=True)
    else:
        os.mkdir(request["path"], mode)
    return {}, []


def _remove(request: dict[str, Any]) -> Answer:
    path = request["path"]
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
    elif request.get("recursive"):
        import shutil

        shutil.rmtree(path)
    else:
        os.rmdir(path)
    return {}, []


def _rename(request: dict[str, Any]) -> Answer:
    os.rename(request["path"], request["to"])
    return {}, []


def _chmod(request: dict[str, Any]) -> Answer:
    os.chmod(request["path"], int(request["mode"]))
    return {}, []


def _symlink(request: dict[str, Any]) -> Answer:
    os.symlink(request["target"], request["path"])
    return {}, []


def _readlink(request: dict[str, Any]) -> Answer:
    return {"target": os.readlink(request["path"])}, []


def _list(request: dict[str, Any]) -> Answer:
    entries: list[list[object]] = []
    with os.scandir(request["path"]) as found:
        for entry in found:
            if len(entries) == MOST_ENTRIES:
                return {"entries": entries, "cut": True}, []
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            entries.append([entry.name, info.st_mode, info.st_size, info.st_mtime_ns])
    return {"entries": entries}, []


def _read(request: dict[str, Any]) -> Answer:
    file = os.open(request["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _regular(file)
        return {"data": os.pread(file, min(int(request["size"]), PIECE), int(request["offset"]))}, []
    finally:
        os.close(file)


def _write(request: dict[str, Any]) -> Answer:
    truncate = os.O_TRUNC if request.get("truncate") else 0
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | truncate
    file = os.open(request["path"], flags, int(request.get("mode", 0o644)))
    try:
        _regular(file)
        left, offset = memoryview(request["data"]), int(request["offset"])
        while left:
            written = os.pwrite(file, left, offset)
            left, offset = left[written:], offset + written
    finally:
        os.close(file)
    return {}, []


def _regular(file: int) -> None:
    mode = os.fstat(file).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


OPERATIONS: dict[object, Callable[[dict[str, Any]], Answer]] = {
    "open": _open,
    "stat": _stat,
    "mkdir": _mkdir,
    "remove": _remove,
    "rename": _rename,
    "chmod": _chmod,
    "symlink": _symlink,
    "readlink": _readlink,
    "list": _list,
    "read": _read,
    "write": _write,
}
