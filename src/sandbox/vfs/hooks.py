"""Hooks: a user's code before and after every operation on a provider.

A hook is a method `before_<operation>` or `after_<operation>` of the object given as `hooks`; a missing one costs
nothing. `before_*` refuses by raising `Denied`, `PermissionError` or any other OSError; `after_*` sees what was done.
Paths are those that the tenant sees.

| operation | before | after |
|---|---|---|
| stat, readdir, readlink, remove, listxattr | path | path |
| open | path, flags | path, flags |
| create, mkdir, mknod | path, mode | path, mode |
| read, write | path, size, offset | path, bytes moved |
| sync, close | path | path |
| rename, link | old, new | old, new |
| symlink | target, link | target, link |
| setattr | path, changes (a mapping) | path, changes |
| getxattr, setxattr, removexattr | path, name | path, name |
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, TypeVar

from sandbox.errors import Denied
from sandbox.hook_names import OPERATIONS
from sandbox.vfs.provider import Changes, DirEntry, FileInfo, Handle, Provider, Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Unpack

    from sandbox.vfs.provider import Guard
T = TypeVar("T")

# The operations that are reported as events, by these names.
EVENTS = {"create", "mkdir", "mknod", "remove", "rename", "symlink", "link", "setattr"}
QUIET = {"atime_ns", "mtime_ns"}  # the kernel's own bookkeeping after a write


def has_hooks(hooks: object | None) -> bool:
    """Whether the object hooks any file operation: only then must its mounts go through Python."""
    return any(hasattr(hooks, f"{when}_{name}") for name in OPERATIONS for when in ("before", "after"))


class HookedProvider(Provider):
    """`provider` with the hooks' methods around each operation, and file events to `emit`."""

    def __init__(
        self,
        provider: Provider,
        hooks: object | None = None,
        *,
        mount: str = "/",
        emit: Callable[[str, str, int], None] | None = None,
    ) -> None:
        self._provider = provider
        self._mount = mount.rstrip("/")
        self._emit = emit
        self._before: dict[str, Callable[..., object]] = {}
        self._after: dict[str, Callable[..., object]] = {}
        for name in OPERATIONS:
            if (before := getattr(hooks, f"before_{name}", None)) is not None:
                self._before[name] = before
            if (after := getattr(hooks, f"after_{name}", None)) is not None:
                self._after[name] = after
        self.readonly = provider.readonly
        self.flushes = provider.flushes
        self.xattrs = provider.xattrs
        # A hook must be called each time: the kernel must neither cache answers nor delay writes.
        asked = {*self._before, *self._after}
        self.cache_seconds = 0.0 if "stat" in asked else provider.cache_seconds
        self.writeback = provider.writeback and not asked & {"read", "write"}
        self.keep_cache = provider.keep_cache and "read" not in asked

    def stat(self, path: str) -> FileInfo:
        return self._run("stat", (path,), lambda: self._provider.stat(path))

    def readdir(self, path: str) -> Iterable[DirEntry]:
        return self._run("readdir", (path,), lambda: self._provider.readdir(path))

    def open(self, path: str, flags: int, mode: int = 0) -> Handle:
        handle = self._run("open", (path,), lambda: self._provider.open(path, flags, mode), flags)
        return _HookedHandle(self, handle, path)

    def create(self, path: str, mode: int) -> Handle:
        handle = self._run("create", (path,), lambda: self._provider.create(path, mode), mode)
        return _HookedHandle(self, handle, path)

    def mkdir(self, path: str, mode: int) -> None:
        self._run("mkdir", (path,), lambda: self._provider.mkdir(path, mode), mode)

    def mknod(self, path: str, mode: int) -> None:
        self._run("mknod", (path,), lambda: self._provider.mknod(path, mode), mode)

    def remove(self, path: str) -> None:
        self._run("remove", (path,), lambda: self._provider.remove(path))

    def rename(self, old: str, new: str) -> None:
        self._run("rename", (old, new), lambda: self._provider.rename(old, new))

    def link(self, path: str, new: str) -> None:
        self._run("link", (path, new), lambda: self._provider.link(path, new))

    def symlink(self, target: str, link: str) -> None:
        inside = self._mount + link
        self._ask("symlink", target, inside)
        self._provider.symlink(target, link)
        self._tell("symlink", inside, target, inside)

    def readlink(self, path: str) -> str:
        return self._run("readlink", (path,), lambda: self._provider.readlink(path))

    def setattr(self, path: str, **changes: Unpack[Changes]) -> None:
        self._run("setattr", (path,), lambda: self._provider.setattr(path, **changes), changes)

    def statfs(self) -> Space:
        return self._provider.statfs()

    def getxattr(self, path: str, name: str) -> bytes:
        return self._run("getxattr", (path,), lambda: self._provider.getxattr(path, name), name)

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        self._run("setxattr", (path,), lambda: self._provider.setxattr(path, name, value, flags), name)

    def listxattr(self, path: str) -> list[str]:
        return self._run("listxattr", (path,), lambda: self._provider.listxattr(path))

    def removexattr(self, path: str, name: str) -> None:
        self._run("removexattr", (path,), lambda: self._provider.removexattr(path, name), name)

    def guard(self, rules: Callable[[str], Guard]) -> None:
        self._provider.guard(rules)

    def close(self) -> None:
        self._provider.close()

    def _run(self, name: str, paths: tuple[str, ...], act: Callable[[], T], *more: Any) -> T:
        inside = tuple(self._mount + path if path != "/" else self._mount or "/" for path in paths)
        self._ask(name, *inside, *more)
        result = act()
        self._tell(name, inside[-1], *inside, *more)
        return result

    def _ask(self, name: str, *arguments: Any) -> None:
        before = self._before.get(name)
        if before is None:
            return
        try:
            before(*arguments)
        except Denied as problem:
            raise PermissionError(errno.EACCES, str(problem)) from problem

    def _tell(self, name: str, path: str, *arguments: Any) -> None:
        after = self._after.get(name)
        if after is not None:
            after(*arguments)
        if self._emit is None or name not in EVENTS or (name == "setattr" and set(arguments[-1]) <= QUIET):
            return
        self._emit(name, path, 0)


class _HookedHandle(Handle):
    __slots__ = ("_handle", "_owner", "_path", "_written")

    def __init__(self, owner: HookedProvider, handle: Handle, path: str) -> None:
        self._owner = owner
        self._handle = handle
        self._path = owner._mount + path
        self._written = False

    def read(self, size: int, offset: int) -> bytes | bytearray | memoryview:
        self._owner._ask("read", self._path, size, offset)
        data = self._handle.read(size, offset)
        self._owner._tell("read", self._path, self._path, len(data))
        return data

    def write(self, data: memoryview, offset: int) -> int:
        self._owner._ask("write", self._path, len(data), offset)
        count = self._handle.write(data, offset)
        self._written = True
        self._owner._tell("write", self._path, self._path, count)
        return count

    def sync(self) -> None:
        self._owner._ask("sync", self._path)
        self._handle.sync()
        self._owner._tell("sync", self._path, self._path)

    def flush(self) -> None:
        self._handle.flush()

    def stat(self) -> FileInfo:
        return self._handle.stat()

    def setattr(self, **changes: Unpack[Changes]) -> None:
        self._owner._ask("setattr", self._path, changes)
        self._handle.setattr(**changes)
        self._owner._tell("setattr", self._path, self._path, changes)

    def close(self) -> None:
        if self._written and self._owner._emit is not None:
            # One event for everything written between open and close, as for directories that the kernel serves.
            try:
                size = self._handle.stat().size
            except OSError:
                size = 0
            self._owner._emit("write", self._path, size)
        try:
            self._owner._ask("close", self._path)
        finally:
            self._handle.close()
        self._owner._tell("close", self._path, self._path)
