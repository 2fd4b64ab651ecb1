"""Asks the owner about blocked files. A tenant that touches one is refused, and the owner is asked. When they allow it,
the cover is lifted for this sandbox alone, and the next open succeeds.

Only files that `blocked_patterns` covers are asked about. `deny_read`, files of secrets, sockets and our own files are
refused for other reasons, and beneath the covers of the home's secret places there is nothing.
"""

from __future__ import annotations

import errno
import os
import select
from threading import Lock, Thread

from sandbox.asks.question import ONCE, FileSubject, Requester

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sandbox.asks.pending import Asks
    from sandbox.asks.verdict import Verdict
    from sandbox.inotify import Inotify

OPEN = 0x20  # inotify's


class FileAsks:
    """Asks for one sandbox. `pid` is a process in its mount namespace; `lifted` are the paths inside that are uncovered
    now; `tell(summary, path, rule)` is called with what could not be done."""

    def __init__(
        self,
        asks: Callable[[], Asks],
        pid: int,
        patterns: Collection[str],
        seconds: float,
        lifted: set[str],
        tell: Callable[[str, str, str], object],
    ) -> None:
        self._asks = asks
        self._pid = pid
        self._patterns = frozenset(patterns)
        self._seconds = seconds
        self._lifted = lifted
        self._tell = tell
        self._lock = Lock()
        self._ends, self._ending = os.pipe()
        self._threads: list[Thread] = []
        self._closed = False

    def touched(self, path: str, operation: str, rule: str, pid: int, program: str) -> None:
        """A tenant touched the cover at `path`."""
        if rule in self._patterns:
            subject = FileSubject(path, operation, Requester(program, "", pid))
            self._asks().ask(subject, self._seconds, lambda verdict: self._answered(subject, verdict))

    def _answered(self, subject: FileSubject, verdict: Verdict) -> None:
        if not verdict:
            return
        with self._lock:
            if self._closed or subject.path in self._lifted:
                return
            self._lifted.add(subject.path)
            namespace = os.open(f"/proc/{self._pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            try:
                problem = self._lift(namespace, subject, once=verdict.answer == ONCE)
            finally:
                os.close(namespace)
            if problem is not None:
                self._lifted.discard(subject.path)
                self._tell(f"the cover could not be lifted: {problem}", subject.path, "ask")

    def _lift(self, namespace: int, subject: FileSubject, once: bool) -> str | None:
        """Returns why it could not be done."""
        from sandbox.guards.mount_in_namespace import lift

        if not once:
            return lift(namespace, subject.path, subject.writes)
        try:
            opens = _opens(namespace, subject.path)  # watched before anybody can open it
        except OSError as unwatched:
            return str(unwatched)
        problem = lift(namespace, subject.path, subject.writes)
        if problem is not None:
            opens.close()
            return problem
        thread = Thread(target=self._until_opened, args=(subject.path, opens), name="sandbox-lifted", daemon=True)
        self._threads.append(thread)
        thread.start()
        return None

    def _until_opened(self, path: str, opens: Inotify) -> None:
        """Covers it again, without a tripwire, once it was opened or when nobody has opened it in time."""
        from sandbox.guards.mount_in_namespace import cover

        poll = select.poll()
        poll.register(opens.fd, select.POLLIN)
        poll.register(self._ends, select.POLLIN)
        poll.poll(self._seconds * 1000)
        opens.close()
        with self._lock:
            if self._closed:
                return
            self._lifted.discard(path)
            try:
                namespace = os.open(f"/proc/{self._pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return  # the sandbox has ended: nobody can open it any more
            try:
                for _, why in cover(namespace, [path]):
                    if why:
                        self._tell(f"it could not be covered again: {why}", path, "ask")
            finally:
                os.close(namespace)

    def close(self) -> None:
        """The sandbox ends. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            threads = list(self._threads)
        os.close(self._ending)
        for thread in threads:
            thread.join(5.0)
        os.close(self._ends)


def _opens(namespace: int, path: str) -> Inotify:
    """A queue that becomes readable when somebody opens what the cover at `path` hides. Raises OSError."""
    from sandbox.guards.mount_in_namespace import beneath
    from sandbox.inotify import Inotify

    hidden = beneath(namespace, path)
    if hidden is None:
        raise OSError(errno.ENOENT, "what is beneath it cannot be found", path)
    try:
        opens = Inotify()
        try:
            opens.add(f"/proc/self/fd/{hidden}", OPEN)
        except BaseException:
            opens.close()
            raise
        return opens
    finally:
        os.close(hidden)
