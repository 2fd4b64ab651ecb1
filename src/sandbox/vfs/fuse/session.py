"""The threads that serve one mount.

One thread at a time leads: it takes a request from the kernel, handles it and replies. While the provider is fast, it
keeps leading, and polls briefly for the next request before it sleeps, because waking a thread costs more than most
requests. While the provider is slow, it hands the lead to another thread before it handles a request.

The watchdog sleeps until there is work. Then it checks a few times a second for requests that take long: it hands on
the lead, replies ETIMEDOUT to a request past its deadline, and EINTR to one whose process was interrupted a while ago.
So a provider that hangs costs a thread; the tenant gets an error, and the mount keeps working.
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
from sandbox.vfs.fuse.request import FuseRequest
from sandbox.vfs.fuse.structs import FuseOp

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.vfs.fuse.handlers import Buffer
    from sandbox.vfs.provider import Provider

MOST_THREADS = 32
# How long a thread polls for the next request before it sleeps. With one processor, polling would only keep the tenant
# from making the request.
LOOK = 200e-6 if len(os.sched_getaffinity(0)) > 1 else 0.0
# If a request takes longer than this while others wait, the provider is slow.
SLOW = 2e-3
# Threads stuck in a provider are abandoned. While there are this many, every further request fails at once.
MOST_STUCK = 64
TICK = 0.05
DEADLINE = 30.0
# Any signal interrupts a request, even one that the program handles before it goes on, and few programs expect EINTR
# from a file. So a slow provider, or a busy machine, gets this many ticks to finish. Then the request ends with EINTR,
# so that the waiting program can be killed.
PATIENCE = 20

_INTERRUPT = int(FuseOp.INTERRUPT)  # members of an Enum are slow to look up
_UNANSWERED = frozenset({FuseOp.FORGET, FuseOp.BATCH_FORGET, FuseOp.INTERRUPT})


class _Worker:
    """What the watchdog needs to know about one thread: its current request, since when, and whether it leads.
    `lock` decides who replies and who hands on the lead."""

    __slots__ = ("interrupted", "leads", "lock", "since", "stuck", "unique")

    def __init__(self) -> None:
        self.lock = Lock()
        self.unique = 0
        self.since = 0.0
        self.interrupted = 0  # ticks left until the request is given up; 0: nobody interrupted it
        self.stuck = False
        self.leads = False


class FuseSession:
    """Serves `provider` on a mounted /dev/fuse descriptor, which it owns from now on. Starts at once.

    It ends when the mount does; `close` waits a moment for that. `report` is called with errors of the provider.
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
        # The provider counts as slow until then.
        self._slow_until = 0.0
        self._work = Event()
        self._awake = False
        self._ended = Event()
        self._add_worker()
        Thread(target=self._watch, name="sandbox-fuse-watch", daemon=True).start()

    def close(self, timeout: float = 5.0) -> bool:
        """Waits until the kernel has released the mount. Returns whether it has."""
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
                self._one(worker, FuseRequest(view[:size]))
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
        """Lets another thread take requests while `worker` handles its own."""
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
                # ENOENT: the request was withdrawn while we read it.
                if problem.errno not in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    return 0

    def _one(self, worker: _Worker, request: FuseRequest) -> None:
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
            worker.interrupted = 0
        if request.op in _UNANSWERED:
            return
        delivered = mine and self._answer(request.unique, problem, reply)
        if not delivered and not problem:
            self._operations.undelivered(request.op, reply)

    def _answer(self, unique: int, problem: int, reply: Buffer = b"") -> bool:
        """Sends a reply. Returns False when nobody waits for it any more."""
        body = b"" if problem else reply
        try:
            os.writev(
                self._device, (structs.OUT_HEADER.pack(structs.OUT_HEADER.size + len(body), -problem, unique), body)
            )
            return True
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV) or problem:
                return False
            # The kernel rejected the reply, but the tenant must still get one.
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
        """Reports an error of the provider, each kind once: a tenant can repeat it as often as it likes."""
        text = f"a file provider raised {type(error).__name__}: {error}"[:500]
        with self._lock:
            if text in self._reported or len(self._reported) >= 100:
                return
            self._reported.add(text)
        self._report(text)

    # The watchdog

    def _watch(self) -> None:
        while not self._ended.is_set():
            self._work.wait()
            self._work.clear()
            # Pause first: under load this thread wakes once per tick, not once per request.
            while not self._ended.wait(TICK) and self._look():
                pass
            self._awake = False
            # A request may have arrived between the check and the line above.
            if any(worker.unique for worker in list(self._workers)):
                self._awake = True
                self._work.set()

    def _look(self) -> bool:
        """Checks all workers. Returns False when none is busy."""
        now = time.monotonic()
        busy = [worker for worker in list(self._workers) if worker.unique]
        for worker in busy:
            age = now - worker.since
            if age > self._deadline:
                self._give_up(worker, errno.ETIMEDOUT)
            elif age > TICK:
                self._pass_on(worker)
            self._tick(worker)
        return bool(busy)

    def _tick(self, worker: _Worker) -> None:
        with worker.lock:
            worker.interrupted -= worker.interrupted > 1
            over = worker.interrupted == 1
        if over:
            self._give_up(worker, errno.EINTR)

    def _give_up(self, worker: _Worker, problem: int) -> None:
        """Replies in place of a worker. The worker ends when its provider returns, if ever."""
        with worker.lock:
            unique, worker.unique = worker.unique, 0
            if not unique or worker.stuck:
                return
            worker.stuck = True
        with self._lock:
            self._stuck += 1
        self._pass_on(worker)
        self._answer(unique, problem)

    def _interrupt(self, request: FuseRequest) -> None:
        """Marks the request that the tenant no longer waits for; the watchdog ends it unless it completes by itself."""
        unique = structs.INTERRUPT_IN.unpack_from(request.body)[0]
        for worker in list(self._workers):
            if worker.unique == unique:
                worker.interrupted = worker.interrupted or PATIENCE
                return
        # Not started yet, or just completed: the kernel knows which, and asks again if necessary.
        self._answer(request.unique, errno.EAGAIN)


def _complain(text: str) -> None:
    print(f"sandbox: {text}", file=sys.stderr)
