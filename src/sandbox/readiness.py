"""One sleeping thread for all sandboxes of a process: it calls back when somebody connects to one, or after a delay.

Every sandbox listens for tenants' connections and for clients, and most of the time nobody connects. A thread for each
is cheap to have, but the kernel looks at every thread of the machine whenever a new sandbox changes its root, so the
thousandth would pay for all the others. The thread exists while anything is watched, and imports nothing heavy.

`sandbox run` can do without it for a moment: `hold` delays its start, and the main thread polls `fileno()` along with
its command's output and soon calls `release`. If the command ends before that, the import of `threading` and of what
that imports is saved, a tenth of the whole run.
"""

from __future__ import annotations

import os
import select
import sys
import time
from _thread import RLock  # `threading` is loaded when there is a thread to start

from sandbox import sockets as socket
from sandbox.wiring import Wiring

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Sequence
    from threading import Thread

_PAUSE = 0.1
_PATIENCE = 5.0  # for the thread to end
_UNIT = 1 if hasattr(select, "epoll") else 1000  # epoll counts in seconds, poll in milliseconds


class Watch:
    """Calls `ready` once, in the waiting thread, when one of `sockets` has something to read. `ready` must not block.

    Cancel it before the sockets are closed. It may still fire while it is being cancelled.
    """

    def __init__(self, sockets: Sequence[_socket.socket], ready: Callable[[], object]) -> None:
        self.descriptors = [one.fileno() for one in sockets]
        self.ready = ready
        self._waiter = _current
        self._waiter.add(self)

    def cancel(self) -> None:
        """Stops watching. Idempotent."""
        self._waiter.remove(self)


class Later:
    """Calls `due` once, in the waiting thread, `seconds` from now. `due` must not block."""

    def __init__(self, seconds: float, due: Callable[[], object]) -> None:
        self.at = time.monotonic() + seconds
        self.due = due
        self._waiter = _current
        self._waiter.add_later(self)

    def cancel(self) -> None:
        """Cancels it; `due` may still be called meanwhile. Idempotent."""
        self._waiter.remove_later(self)


class _Waiter:
    """The thread and what it waits for."""

    def __init__(self) -> None:
        # Reentrant: a garbage collection under the lock may close a forgotten sandbox.
        self._lock = RLock()
        self._watches: dict[int, Watch] = {}
        self._laters: set[Later] = set()
        self._loop: _Loop | None = None
        self._held = False
        self._firing = False

    def hold(self) -> None:
        self._held = hasattr(select, "epoll")  # only epoll has a descriptor to poll

    def release(self) -> None:
        with self._lock:
            self._held = False
            if self._loop is not None:
                self._loop.start()

    def fileno(self) -> int | None:
        with self._lock:
            return self._loop.fileno() if self._held and self._loop is not None else None

    def _looping(self) -> _Loop:
        """The loop, made if there is none. Call it under the lock."""
        if self._loop is None:
            loop = _Loop(self.fire, self.fire_due)
            if not self._held:
                loop.start()
            self._loop = loop
        return self._loop

    def add(self, watch: Watch) -> None:
        ours = dict.fromkeys(watch.descriptors, watch)
        with self._lock:
            self._watches.update(ours)
            self._looping().register(watch.descriptors)

    def add_later(self, later: Later) -> None:
        with self._lock:
            # The thread sleeps until the first one is due, and need not be woken for later ones.
            first = all(later.at < one.at for one in self._laters)
            self._laters.add(later)
            loop = self._looping()
            if first:
                loop.wake()

    def remove_later(self, later: Later) -> None:
        with self._lock:
            self._laters.discard(later)
            ended = self._unneeded()
        if ended is not None:
            ended.stop()

    def _unneeded(self) -> _Loop | None:
        """The loop, when there is nothing left to wait for. Call it under the lock."""
        if self._watches or self._laters or self._firing:
            return None
        ended, self._loop = self._loop, None
        return ended

    def remove(self, watch: Watch) -> None:
        ended = None
        with self._lock:
            ours = [one for one in watch.descriptors if self._watches.get(one) is watch]
            for one in ours:
                del self._watches[one]
            if ours and self._loop is not None:
                self._loop.unregister(ours)
                ended = self._unneeded()
        if ended is not None:
            ended.stop()

    def fire(self, descriptor: int) -> None:
        """Called in the thread."""
        with self._lock:
            watch = self._watches.get(descriptor)
            if watch is None:
                return  # cancelled meanwhile
            self._firing = True  # keeps the loop: a new one might need descriptors that there are not
        self.remove(watch)
        try:
            watch.ready()
        except (RuntimeError, OSError):  # no thread can be started, or nothing opened, at the moment
            time.sleep(_PAUSE)
            self._again(watch)
        except Exception:  # noqa: BLE001 - the other sandboxes need the thread
            _report()
        with self._lock:
            self._firing = False
            ended = self._unneeded()
        if ended is not None:
            ended.stop()

    def _again(self, watch: Watch) -> None:
        try:
            self.add(watch)
        except (OSError, ValueError):  # its socket was closed meanwhile
            with self._lock:
                for one in watch.descriptors:
                    if self._watches.get(one) is watch:
                        del self._watches[one]

    def fire_due(self) -> float | None:
        """Called in the thread: calls what is due, and returns the seconds until the next one."""
        now = time.monotonic()
        with self._lock:
            due = [one for one in self._laters if one.at <= now]
            next_at = min((one.at for one in self._laters if one.at > now), default=None)
        for one in due:
            try:
                one.due()
            except (RuntimeError, OSError):  # no thread can be started, or nothing opened, at the moment
                return _PAUSE
            except Exception:  # noqa: BLE001 - the other sandboxes need the thread
                _report()
            self.remove_later(one)
        return None if next_at is None else max(0.0, next_at - time.monotonic())


class _Loop:
    """One run of the thread, which may not have started yet."""

    def __init__(self, fire: Callable[[int], None], fire_due: Callable[[], float | None]) -> None:
        self._fire = fire
        self._fire_due = fire_due
        self._poll = select.epoll() if hasattr(select, "epoll") else select.poll()
        self._stopped = False
        self._thread: Thread | None = None

    def start(self) -> None:
        """Starts the thread, once."""
        if self._thread is None:
            from threading import Thread

            self._woken, self._wake = socket.socketpair()
            self._poll.register(self._woken, select.POLLIN)
            self._thread = Thread(target=self._run, name="sandbox-readiness", daemon=True)
            self._thread.start()

    def fileno(self) -> int:
        """Readable when one of the descriptors is."""
        return int(self._poll.fileno())  # type: ignore[union-attr]

    def register(self, descriptors: Sequence[int]) -> None:
        for one in descriptors:
            self._poll.register(one, select.POLLIN)
        self._notice()

    def unregister(self, descriptors: Sequence[int]) -> None:
        for one in descriptors:
            self._poll.unregister(one)
        self._notice()

    def _notice(self) -> None:
        """poll(2), unlike epoll, sees changes only when it is called again."""
        if not hasattr(select, "epoll"):
            self.wake()

    def wake(self) -> None:
        if self._thread is None:
            return  # it will look when it starts
        try:
            self._wake.send(b"x")
        except OSError:
            pass  # the thread has ended

    def stop(self) -> None:
        """Ends the thread and gives its descriptors back."""
        self._stopped = True
        if self._thread is None:
            self._close()
            return
        from threading import current_thread

        self.wake()  # the thread may have ended already, so it leaves closing this end to us
        if self._thread is not current_thread():
            self._thread.join(_PATIENCE)
        self._wake.close()

    def _run(self) -> None:
        while not self._stopped:
            seconds = self._fire_due()
            if self._stopped:
                break
            for descriptor, _ in self._poll.poll(None if seconds is None else seconds * _UNIT):
                if descriptor == self._woken.fileno():
                    self._woken.recv(64)
                else:
                    self._fire(descriptor)
        self._close()
        self._woken.close()

    def _close(self) -> None:
        if hasattr(self._poll, "close"):
            self._poll.close()


def _report() -> None:
    """Prints an exception: the thread goes on, because every sandbox of the process needs it."""
    sys.excepthook(*sys.exc_info())


_current = _Waiter()


def hold() -> None:
    """Starts no thread until `release`, which the caller promises to call before it waits for long."""
    Wiring.soon = tuple(one for one in Wiring.soon if one != "threading")
    _current.hold()


def release() -> None:
    """Starts the thread, if there is anything to wait for."""
    _current.release()


def fileno() -> int | None:
    """While held: a descriptor that is readable when somebody connects; None if there is nothing to wait for."""
    return _current.fileno()


def _after_fork() -> None:
    """The child process has no thread, and the sandboxes belong to its parent."""
    global _current
    _current = _Waiter()


os.register_at_fork(after_in_child=_after_fork)
