"""Reports names that appear in directories to every sandbox of this process, from one inotify queue.

The kernel gives a user few queues (128 by default, `fs.inotify.max_user_instances`), and editors want some of them. A
queue for each sandbox left the 129th without one. One thread reads the queue and only sorts what it reads: each
subscriber has its own list, so a sandbox whose tenants make names by the thousand holds up no other. Where the kernel
itself had to drop some, every subscriber is notified.

A directory that two sandboxes watch is one watch in the kernel. Neither can end or narrow the other's.
"""

from __future__ import annotations

import os
import select
from errno import ENOSPC
from threading import RLock, Thread, current_thread

from sandbox.inotify import (
    CLOSE_WRITE,
    CREATE,
    DONT_FOLLOW,
    IGNORED,
    IS_DIR,
    MASK_ADD,
    MOVED_TO,
    ONLY_DIR,
    OVERFLOW,
    Inotify,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    #: A path, None when some were lost; and whether it is a directory.
    Appeared = tuple[str | None, bool]

_WATCHED = CREATE | MOVED_TO | ONLY_DIR | DONT_FOLLOW | MASK_ADD
_PATIENCE = 5.0  # seconds for the thread to end


class Appearances:
    """One sandbox's subscription. Calls `hear` in the reading thread with what appeared; it must not block."""

    def __init__(self, hear: Callable[[list[Appeared]], object]) -> None:
        """Raises OSError when this user has no queue left."""
        self.hear = hear
        self.numbers: set[int] = set()
        self._queue = _shared.join(self)

    def add(self, directory: str, written: bool = False) -> bool:
        """Watches one directory; False when the kernel's bound is reached. `written`: also for files written there."""
        return self._queue.add(self, directory, written)

    def read_now(self) -> None:
        """Returns when everything that has appeared until now was passed on."""
        self._queue.pass_on(self)

    def close(self) -> None:
        """Stops notifying. Idempotent."""
        _shared.leave(self, self._queue)


class _Shared:
    """Holds the queue of this process while any sandbox needs it."""

    def __init__(self) -> None:
        # Reentrant: a garbage collection under the lock may close a forgotten sandbox.
        self.lock = RLock()
        self.queue: _Queue | None = None

    def join(self, one: Appearances) -> _Queue:
        with self.lock:
            if self.queue is None:
                self.queue = _Queue(self.lock)
            self.queue.members.add(one)
            return self.queue

    def leave(self, one: Appearances, queue: _Queue) -> None:
        with self.lock:
            if one not in queue.members:
                return
            queue.members.remove(one)
            last = not queue.members
            if last and self.queue is queue:
                self.queue = None
            elif not last:
                queue.forget(one)
        if last:
            queue.stop()


class _Queue:
    """The kernel's queue and the thread that reads it."""

    def __init__(self, lock: RLock) -> None:
        self.members: set[Appearances] = set()
        self._lock = lock
        self._passing_on = RLock()  # held from reading until what was read is passed on
        # Number of a watch -> who wants it: the directory's path, and whether writing counts.
        self._places: dict[int, dict[Appearances, tuple[str, bool]]] = {}
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        try:
            self.inotify = Inotify()
        except OSError:
            os.close(self._wake)
            raise
        self._thread = Thread(target=self._run, name="sandbox-appearances", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self.inotify.close()
            os.close(self._wake)
            raise

    def add(self, one: Appearances, directory: str, written: bool) -> bool:
        with self._lock:
            if one not in self.members:
                return True
            try:
                number = self.inotify.add(directory, _WATCHED | (CLOSE_WRITE if written else 0))
            except OSError as problem:
                return problem.errno != ENOSPC  # gone again, or unreadable and so covered whole
            wanted = self._places.setdefault(number, {})
            wanted[one] = directory, written or (one in wanted and wanted[one][1])
            one.numbers.add(number)
        return True

    def forget(self, one: Appearances) -> None:
        """Removes the watches of a subscriber that left while others stay. Call it with the lock held."""
        for number in one.numbers:
            wanted = self._places.get(number, {})
            if wanted.pop(one, None) is not None and not wanted:
                del self._places[number]
                self.inotify.remove(number)

    def stop(self) -> None:
        os.eventfd_write(self._wake, 1)
        if self._thread is not current_thread():
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self.inotify.fd, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while not any(fd == self._wake for fd, _ in poller.poll()):
            self.pass_on()
        self.inotify.close()
        os.close(self._wake)

    def pass_on(self, asker: Appearances | None = None) -> None:
        """Tells each subscriber what appeared. `asker`: only if it is still one, so that the queue is open."""
        with self._passing_on:
            for one, appeared in self._read(asker).items():
                one.hear(appeared)

    def _read(self, asker: Appearances | None) -> dict[Appearances, list[Appeared]]:
        told: dict[Appearances, list[Appeared]] = {}
        with self._lock:
            if asker is not None and asker not in self.members:
                return told
            for number, mask, _, name in self.inotify.read():
                if mask & OVERFLOW:
                    for one in self.members:
                        told.setdefault(one, []).append((None, False))
                elif mask & IGNORED:  # the directory is gone; a tenant may make and remove any number
                    for one in self._places.pop(number, ()):
                        one.numbers.discard(number)
                elif name:
                    for one, (directory, written) in self._places.get(number, {}).items():
                        if written or not mask & CLOSE_WRITE:
                            path = f"{directory.rstrip('/')}/{name}"
                            told.setdefault(one, []).append((path, bool(mask & IS_DIR)))
        return told


_shared = _Shared()


def _after_fork() -> None:
    """The child has no thread, and the sandboxes belong to its parent. An open queue would count against the user."""
    global _shared
    if _shared.queue is not None:
        _shared.queue.inotify.close()
    _shared = _Shared()


os.register_at_fork(after_in_child=_after_fork)
