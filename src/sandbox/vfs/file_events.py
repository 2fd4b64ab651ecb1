"""File events for directories that the kernel serves: inotify, from outside, on what the guest opened inside.

Tenants can rearrange the tree at any time, so everything in it is opened with `openat2`, below its root.
"""

from __future__ import annotations

import os
import select
from threading import Thread, current_thread
from typing import TYPE_CHECKING

from sandbox import inotify
from sandbox.vfs.open_beneath import opened
from sandbox.vfs.provider import join

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WATCHED = inotify.ATTRIB | inotify.CLOSE_WRITE | inotify.MOVED_FROM | inotify.MOVED_TO | inotify.CREATE | inotify.DELETE
# The kernel's own limit per user is often lower; then it answers ENOSPC.
MOST_DIRECTORIES = 65536
MOST_DEEP = 64


class FileEvents:
    """Watches trees until closed. `emit(operation, path, size)` is called from a thread of its own.

    What was there before is not reported. If a tree is too large for the kernel's limits, a part of it is watched, and
    `report` is called.
    """

    def __init__(
        self,
        trees: Mapping[str, int],
        emit: Callable[[str, str, int], None],
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`trees`: inside path -> directory descriptor, which is ours from now on."""
        self._trees = dict(trees)
        self._emit = emit
        self._report = report
        self._complained = False
        self._inotify = inotify.Inotify()
        self._wake, self._waker = os.pipe()
        # Number of a watch -> the tree it is in and the path below that.
        self._places: dict[int, tuple[str, str]] = {}
        self._moving: dict[int, str] = {}
        for tree in self._trees:
            self._add(tree, "/", tell=False)
        self._thread = Thread(target=self._run, name="sandbox-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Reports what has happened so far, then ends."""
        os.write(self._waker, b".")
        if self._thread is not current_thread():  # a forgotten sandbox is collected in any thread
            self._thread.join()
        self._inotify.close()
        for fd in (self._wake, self._waker, *self._trees.values()):
            os.close(fd)

    def _add(self, tree: str, path: str, *, tell: bool) -> None:
        """Watches a directory and everything below. With `tell`, reports what is in directories that were not watched
        so far as just made: they may have been filled, and even moved, before we got to them."""
        if path.count("/") > MOST_DEEP:
            return
        try:
            with opened(self._trees[tree], path, os.O_RDONLY | os.O_DIRECTORY) as fd:
                if len(self._places) >= MOST_DIRECTORIES or not (number := self._number(fd)):
                    self._incomplete()
                    return
                new = number not in self._places
                self._places[number] = tree, path
                with os.scandir(fd) as entries:
                    found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError:
            return  # it has gone again, or we may not read it
        for name, is_dir in found:
            place = join(path, name)
            if tell and new:
                self._tell("mkdir" if is_dir else "create", tree, place)
            if is_dir:
                self._add(tree, place, tell=tell)

    def _number(self, directory: int) -> int:
        try:
            return self._inotify.add(f"/proc/self/fd/{directory}", WATCHED | inotify.ONLY_DIR)
        except OSError:
            return 0  # the kernel's numbers begin at 1

    def _incomplete(self) -> None:
        if not self._complained:
            self._complained = True
            self._report("too many directories to watch them all: some file events will be missing")

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._inotify.fd, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        ending = False
        while not ending:
            ending = any(fd == self._wake for fd, _ in poller.poll())
            while happened := self._inotify.read():
                self._events(happened)
            self._flush()

    def _events(self, happened: list[tuple[int, int, int, str]]) -> None:
        for number, mask, cookie, name in happened:
            if mask & inotify.OVERFLOW:
                self._report("file events came faster than they could be told: some are missing")
            elif mask & inotify.IGNORED:
                self._places.pop(number, None)
            elif number in self._places and name:
                tree, directory = self._places[number]
                self._one(tree, join(directory, name), mask, cookie)

    def _one(self, tree: str, path: str, mask: int, cookie: int) -> None:
        is_dir = bool(mask & inotify.IS_DIR)
        if mask & inotify.CREATE:
            self._tell("mkdir" if is_dir else "create", tree, path)
            if is_dir:
                self._add(tree, path, tell=True)
        elif mask & inotify.CLOSE_WRITE:
            self._tell("write", tree, path)
        elif mask & inotify.DELETE:
            self._tell("remove", tree, path)
        elif mask & inotify.MOVED_FROM:
            self._flush()
            self._moving[cookie] = tree + path
        elif mask & inotify.MOVED_TO:
            self._tell("rename" if self._moving.pop(cookie, None) else "create", tree, path)
            if is_dir:
                self._add(tree, path, tell=True)  # most often the same watch, at its new path
        elif mask & inotify.ATTRIB and not is_dir:
            self._tell("setattr", tree, path)

    def _flush(self) -> None:
        """Reports as deleted what was moved out of the tree."""
        for path in self._moving.values():
            self._emit("remove", path, 0)
        self._moving.clear()

    def _tell(self, operation: str, tree: str, path: str) -> None:
        size = 0
        if operation == "write":
            try:
                with opened(self._trees[tree], path) as fd:
                    size = os.fstat(fd).st_size
            except OSError:
                pass  # removed since
        self._emit(operation, tree + path, size)
