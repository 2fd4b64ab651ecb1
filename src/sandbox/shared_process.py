"""Commands that are kept under a name: their starter can leave and come back, and others can join."""

from __future__ import annotations

import time
from collections import deque
from threading import Condition, Thread

from sandbox.errors import SandboxClosed, SandboxError
from sandbox.process_view import ProcessView
from sandbox.result import Chunk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.guest.process import Process

REMEMBERED = 64 * 1024  # bytes of output that somebody who joins sees at once
BEHIND = 2**20  # bytes that a slow reader may be behind before the command waits for it


class SharedProcess:
    """One kept command. A thread reads its output, remembers the end of it, and passes it on to all who have joined.

    While nobody has joined, the command runs on and only the last of its output is remembered.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.ended = False
        self.failed: SandboxError | None = None
        self.changed = Condition()
        self._recent: deque[Chunk] = deque()
        self._recent_size = 0
        self._views: list[SharedProcessView] = []

    def start(self) -> None:
        """Begins to read. A view that must see all of the output has to join before this."""
        Thread(target=self._read, name="sandbox-shared", daemon=True).start()

    def join(self, joined: bool = True) -> SharedProcessView:
        """A view that begins with what was printed lately."""
        with self.changed:
            view = SharedProcessView(self, self._recent, joined)
            self._views.append(view)
            return view

    def leave(self, view: SharedProcessView) -> None:
        """Forgets a view; the command runs on."""
        with self.changed:
            self._views = [one for one in self._views if one is not view]
            self.changed.notify_all()

    def _read(self) -> None:
        try:
            for chunk in self.process.chunks():
                with self.changed:
                    self._remember(chunk)
                    for view in self._views:
                        view.put(chunk)
                    self.changed.notify_all()
                    while any(view.behind > BEHIND for view in self._views):
                        self.changed.wait()
        except SandboxError as problem:
            self.failed = problem
        except OSError:  # the process was closed while we read
            self.failed = SandboxClosed("the sandbox has ended")
        finally:
            with self.changed:
                self.ended = True
                self.changed.notify_all()
            self.process.close()

    def _remember(self, chunk: Chunk) -> None:
        self._recent.append(chunk)
        self._recent_size += len(chunk.data)
        while self._recent_size > REMEMBERED and len(self._recent) > 1:
            self._recent_size -= len(self._recent.popleft().data)


class SharedProcessView(ProcessView):
    """One client's view of a kept command. Closing it leaves the command running."""

    kept = True

    def __init__(self, shared: SharedProcess, recent: deque[Chunk], joined: bool) -> None:
        super().__init__(shared.process.tty)
        self.joined = joined  # whether it ran already when this view was made
        assert shared.process.pid is not None
        self.pid = shared.process.pid
        self.behind = 0
        self._shared = shared
        self._closed = False
        self._arrived: deque[Chunk] = deque()
        for chunk in recent:
            self.put(chunk)

    def put(self, chunk: Chunk) -> None:
        """Takes in a piece; called with the lock held."""
        self._arrived.append(chunk)
        self.behind += len(chunk.data)

    def _taken(self, size: int) -> None:
        with self._shared.changed:
            self.behind -= size
            self._shared.changed.notify_all()

    def _receive(self, timeout: float | None, stream: str | None = None) -> Chunk | None:
        until = None if timeout is None else time.monotonic() + timeout
        shared = self._shared
        with shared.changed:
            while not self._arrived and not shared.ended and not self._closed:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError("the command still runs")
                shared.changed.wait(left)
            if self._closed:
                raise SandboxClosed("this view of the command is closed")
            if self._arrived:
                return self._arrived.popleft()
            if shared.failed is not None:
                raise shared.failed
            self.result = shared.process.result
            return None

    def write(self, data: bytes) -> None:
        """Gives the command all of `data` as input. Raises BrokenPipeError when it reads no more."""
        self._living().write(data)

    def close_stdin(self) -> None:
        """Ends the command's input."""
        self._living().close_stdin()

    def signal(self, number: int) -> None:
        """Sends a signal to the command's process group; nothing happens when it has ended."""
        if not self._shared.ended:
            self._shared.process.signal(number)

    def kill(self) -> None:
        """Kills every process of the command."""
        if not self._shared.ended:
            self._shared.process.kill()

    def resize(self, rows: int, columns: int) -> None:
        """Tells the command's terminal its new size."""
        if not self._shared.ended:
            self._shared.process.resize(rows, columns)

    def close(self) -> None:
        """Leaves; the command runs on. A thread that waits on this view gets SandboxClosed."""
        with self._shared.changed:
            self._closed = True
        self._shared.leave(self)

    def _living(self) -> Process:
        if self._shared.ended:
            raise BrokenPipeError("the command has ended")
        return self._shared.process
