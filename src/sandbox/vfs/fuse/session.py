"""The threads that serve one mount.

One thread at a time has the lead: it takes a request from the kernel, does it and answers. While the provider is quick
it keeps the lead, and looks for the next request a moment longer before it sleeps: to wake a thread costs more than
most requests do. Where requests wait for a slow provider, it passes the lead on before it begins.

The watch sleeps until there is work and then looks, a few times a second, whether some request takes long: it passes
the lead on, answers ETIMEDOUT for a request past its deadline and EINTR for one whose process was interrupted. So a
provider that hangs costs a thread, and the tenant gets an error while the mount lives on.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from sandbox.vfs.fuse import structs
from sandbox.vfs.fuse.operations import Operations
from sandbox.vfs.fuse.request import Request
from sandbox.vfs.fuse.structs import Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.vfs.fuse.operations import Buffer
    from sandbox.vfs.provider import Provider

MOST_THREADS = 32
# How long a thread looks for the next request before it sleeps. With one processor that would only keep the tenant
# from making it.
LOOK = 200e-6 if len(os.sched_getaffinity(0)) > 1 else 0.0
# A request that takes longer, while others wait, shows that the provider is slow.
SLOW = 2e-3
# Threads stuck in a provider are given up; while there are this many of them, every further request fails at once.
MOST_STUCK = 64
TICK = 0.05
DEADLINE = 30.0

_INTERRUPT = int(Op.INTERRUPT)  # members of an Enum are slow to look up
_UNANSWERED = frozenset({Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT})


class _Worker:
    """What the watch must know of one thread: which request it is at, since when, and whether it has the lead.
    `lock` decides who answers and who passes the lead on."""

    __slots__ = ("interrupted", "leads", "lock", "since", "stuck", "unique")

    def __init__(self) -> None:
        self.lock = Lock()
        self.unique = 0
        self.since = 0.0
        self.interrupted = False
        self.stuck = False
        self.leads = False


class Session:
    """Serves `provider` on a mounted /dev/fuse descriptor, which it owns from now on. Starts at once.

    It ends when the mount does; `close` waits for that a moment. `report` hears of faults in the provider.
    """

    def __init__(
        self,
        device: int,
        provider: Provider,
        *,
        deadline: float = DEADLINE,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self._device = device
        self._operations = Operations(provider)
        self._deadline = deadline
        self._report = report or _complain
        self._reported: set[str] = set()
        self._workers: list[_Worker] = []
        self._living = 0
        self._stuck = 0
        # Once the mount is gone nobody new may use the device: its number may soon be another file's.
        self._over = False
        self._lock = Lock()
        self._lead = Lock()
        self._followers = 0
        # Until then the provider counts as slow.
        self._slow_until = 0.0
        self._work = Event()
        self._awake = False
        self._ended = Event()
        self._add_worker()
        Thread(target=self._watch, name="sandbox-fuse-watch", daemon=True).start()

    def close(self, timeout: float = 5.0) -> bool:
        """Waits until the kernel has let go of the mount; says whether it has."""
        return self._ended.wait(timeout)

    # Workers

    def _add_worker(self) -> None:
        worker = _Worker()
        with self._lock:
            if self._over:
                return
            self._workers.append(worker)
            self._living += 1
        Thread(target=self._serve, args=(worker,), name="sandbox-fuse", daemon=True).start()

    def _serve(self, worker: _Worker) -> None:
        buffer = bytearray(structs.BUFFER)
        view = memoryview(buffer)
        device = select.poll()
        device.register(self._device, select.POLLIN)
        try:
            while not worker.stuck:
                if not worker.leads:
                    self._follow(worker)
                size = self._take(device, buffer)
                if not size:
                    return
                self._one(worker, Request(view[:size]))
                took = time.monotonic() - worker.since
                if took > SLOW and device.poll(0):
                    self._slow_until = worker.since + 3 * took
        finally:
            self._left(worker)

    def _follow(self, worker: _Worker) -> None:
        """Waits for the lead."""
        with self._lock:
            self._followers += 1
        self._lead.acquire()
        with self._lock:
            self._followers -= 1
        worker.leads = True

    def _pass_on(self, worker: _Worker) -> None:
        """Lets another thread take requests while `worker` is at its own."""
        with worker.lock:
            if not worker.leads:
                return
            with self._lock:
                short = not self._followers
                if short and self._living - self._stuck >= MOST_THREADS:
                    return
            worker.leads = False
        self._lead.release()
        if short:
            self._add_worker()

    def _take(self, device: select.poll, buffer: bytearray) -> int:
        """The next request, or 0 when the mount is gone."""
        until = time.monotonic() + LOOK
        while not device.poll(0) and time.monotonic() < until:
            pass
        while True:
            try:
                return os.readv(self._device, (buffer,))
            except OSError as problem:
                # ENOENT: the request was withdrawn while we took it.
                if problem.errno not in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    return 0

    def _one(self, worker: _Worker, request: Request) -> None:
        worker.since = time.monotonic()
        if request.op == _INTERRUPT:
            self._interrupt(request)
            return
        worker.unique = request.unique
        if worker.since < self._slow_until:
            self._pass_on(worker)
        if not self._awake:
            self._awake = True
            self._work.set()
        reply: Buffer = b""
        problem = 0
        try:
            if self._stuck >= MOST_STUCK:
                raise OSError(errno.EIO, "the provider hangs")
            reply = self._operations.handle(request)
        except OSError as error:
            problem = error.errno if error.errno and 0 < error.errno < 512 else errno.EIO
        except BaseException as error:  # noqa: BLE001 - a provider's fault must not end the mount
            self._fault(error)
            problem = errno.EIO
        with worker.lock:
            mine = worker.unique == request.unique
            worker.unique = 0
            worker.interrupted = False
        if request.op in _UNANSWERED:
            return
        delivered = mine and self._answer(request.unique, problem, reply)
        if not delivered and not problem:
            self._operations.undelivered(request.op, reply)

    def _answer(self, unique: int, problem: int, reply: Buffer = b"") -> bool:
        """Sends an answer; false when nobody waits for it any more."""
        body = b"" if problem else reply
        try:
            os.writev(
                self._device, (structs.OUT_HEADER.pack(structs.OUT_HEADER.size + len(body), -problem, unique), body)
            )
            return True
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV) or problem:
                return False
            # The kernel found the answer impossible: the tenant must still get one.
            self._answer(unique, errno.EIO)
            return False

    def _left(self, worker: _Worker) -> None:
        with worker.lock:
            if worker.leads:
                worker.leads = False
                self._lead.release()
        with self._lock:
            self._over = self._over or not worker.stuck
            self._workers.remove(worker)
            self._living -= 1
            self._stuck -= worker.stuck
            last = self._living == 0
        if last or not worker.stuck:
            self._awake = True
            self._work.set()
        if last:
            self._finish()

    def _finish(self) -> None:
        os.close(self._device)
        try:
            self._operations.close()
        except BaseException as error:  # noqa: BLE001
            self._fault(error)
        self._ended.set()

    def _fault(self, error: BaseException) -> None:
        """Tells of a provider's fault, each kind once: a tenant can repeat it as often as it likes."""
        text = f"a file provider raised {type(error).__name__}: {error}"[:500]
        with self._lock:
            if text in self._reported or len(self._reported) >= 100:
                return
            self._reported.add(text)
        self._report(text)

    # The watch

    def _watch(self) -> None:
        while not self._ended.is_set():
            self._work.wait()
            self._work.clear()
            # First a pause: under load this thread wakes once a tick, not once a request.
            while not self._ended.wait(TICK) and self._look():
                pass
            self._awake = False
            # A request may have come between the look and the line above.
            if any(worker.unique for worker in list(self._workers)):
                self._awake = True
                self._work.set()

    def _look(self) -> bool:
        """One look at all workers. False when there is nothing to watch over."""
        now = time.monotonic()
        busy = [worker for worker in list(self._workers) if worker.unique]
        for worker in busy:
            age = now - worker.since
            if age > self._deadline:
                self._give_up(worker, errno.ETIMEDOUT)
            elif worker.interrupted and age > TICK:
                self._give_up(worker, errno.EINTR)
            elif age > TICK:
                self._pass_on(worker)
        return bool(busy)

    def _give_up(self, worker: _Worker, problem: int) -> None:
        """Answers in a worker's place. The worker ends when its provider returns, if it does."""
        with worker.lock:
            unique, worker.unique = worker.unique, 0
            if not unique or worker.stuck:
                return
            worker.stuck = True
        with self._lock:
            self._stuck += 1
        self._pass_on(worker)
        self._answer(unique, problem)

    def _interrupt(self, request: Request) -> None:
        """Marks the request that the tenant no longer waits for; the watch ends it if it is not done by itself."""
        unique = structs.INTERRUPT_IN.unpack_from(request.body)[0]
        for worker in list(self._workers):
            if worker.unique == unique:
                worker.interrupted = True
                return
        # Not begun yet, or just done: the kernel knows which, and asks again if it must.
        self._answer(request.unique, errno.EAGAIN)


def _complain(text: str) -> None:
    print(f"sandbox: {text}", file=sys.stderr)
