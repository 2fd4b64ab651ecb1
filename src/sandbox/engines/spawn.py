"""`posix_spawn` for a process with thousands of open descriptors, at the cost of a process with few.

The kernel copies the whole table of descriptors for a child, and closes the copies one by one when the child executes
its program. With 1,000 sandboxes alive that takes longer than building another one. A *thread* can have a table of its
own, though: `close_range(CLOSE_RANGE_UNSHARE)` gives it a table with only the descriptors below a number, and the
programs that it starts inherit only those.

Python code must not run in such a thread: a garbage collection there would close descriptors in the wrong table. So the
thread calls only C functions, and garbage collection is off meanwhile.
"""

from __future__ import annotations

import gc
import os
from _operator import call
from _queue import SimpleQueue
from _thread import start_new_thread
from _weakref import ref
from functools import partial
from threading import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Action = tuple[int, int, int]

_UNSHARE = 1 << 1  # CLOSE_RANGE_UNSHARE
_LAST = 2**32 - 1
_FIRST_SLOT = 16  # above every descriptor that a program is started with


class _Slots:
    """Low descriptor numbers that we keep open, to be given to what a child inherits."""

    def __init__(self) -> None:
        self.lock = Lock()
        self._numbers: list[int] = []
        os.register_at_fork(after_in_child=self._new_lock)

    def _new_lock(self) -> None:
        self.lock = Lock()  # the thread that may hold the old lock does not exist in this process

    def reserve(self, count: int) -> None:
        """Makes sure that there are at least `count` slots, with the lowest free numbers."""
        import fcntl

        while len(self._numbers) < count:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            self._numbers.append(fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, _FIRST_SLOT))
            os.close(null)

    def fill(self, descriptors: Sequence[int]) -> dict[int, int]:
        """Duplicates each of `descriptors` into a slot. Returns the slot of each."""
        self.reserve(len(descriptors))
        taken = dict(zip(descriptors, self._numbers, strict=False))
        for descriptor, slot in taken.items():
            os.dup2(descriptor, slot, inheritable=False)
        return taken

    def clear(self) -> None:
        """Closes what the slots hold, and keeps their numbers."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for slot in self._numbers:
            os.dup2(null, slot, inheritable=False)
        os.close(null)


_slots = _Slots()


def reserve(count: int) -> None:
    """Sets low descriptors aside for later.

    A child inherits everything below the highest slot. When slots were reserved only once needed, they lay above the
    descriptors of 17 sandboxes, and each start copied and closed all of those. The 1,000th sandbox took 1.32 times the
    processor time of the first; reserved early, it takes 1.16 times.
    """
    with _slots.lock:
        _slots.reserve(count)


def posix_spawn(
    path: str,
    argv: list[str],
    env: Mapping[str, str],
    *,
    file_actions: Sequence[Action],
    setpgroup: int,
    setsigmask: Sequence[int],
    setsigdef: Sequence[int],
) -> int:
    """As `os.posix_spawn`, for actions that are all `POSIX_SPAWN_DUP2`. Raises OSError."""
    import ctypes

    start = partial(os.posix_spawn, path, argv, env, setpgroup=setpgroup, setsigmask=setsigmask, setsigdef=setsigdef)
    with _slots.lock:
        slots = _slots.fill(list(dict.fromkeys(descriptor for _, descriptor, _ in file_actions)))
        actions = [(action, slots[descriptor], target) for action, descriptor, target in file_actions]
        close_range = ctypes.CDLL(None).close_range
        leave = partial(close_range, ctypes.c_uint(max(slots.values()) + 1), ctypes.c_uint(_LAST), _UNSHARE)
        try:
            results = _in_c_thread([leave, partial(start, file_actions=actions)])
        finally:
            _slots.clear()
    # No second result: it failed, and Python has printed the error. The plain call raises it where it can be caught.
    return results[1] if len(results) == 2 else start(file_actions=file_actions)


def _in_c_thread(calls: list[Callable[[], int]]) -> list[int]:
    """Runs `calls`, all of them C functions, in a new thread. Returns their results, up to the first that raised."""
    results: list[int] = []
    ended: SimpleQueue[object] = SimpleQueue()
    body = partial(results.extend, map(call, calls))
    end = ref(body, ended.put)  # the thread drops `body` last, whether or not a call raised
    collecting = gc.isenabled()
    gc.disable()
    try:
        start_new_thread(body, ())
        del body
        ended.get()
    finally:
        del end
        if collecting:
            gc.enable()
    return results
