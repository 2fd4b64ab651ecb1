"""The commands of one sandbox that run now, whoever started them, and those that are kept under a name."""

from __future__ import annotations

import time
from _thread import RLock  # `threading` is loaded later: see `readiness.py`
from _weakref import ref  # `weakref` itself takes half a millisecond to import

from sandbox.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Event

    from sandbox.guest.process import Process
    from sandbox.info import ProcessInfo
    from sandbox.shared_process import SharedProcess, SharedProcessView


class StartedCommand:
    """What is known of a command from its start on."""

    __slots__ = ("command", "id", "keep", "label", "started", "tty")

    def __init__(self, id: str, command: str, tty: bool, keep: str | None) -> None:
        self.id = id
        self.command = command
        self.tty = tty
        self.keep = keep
        self.label: str | None = None  # its launcher's name for it
        self.started = time.time()


class Launched:
    """What a command gets from its launcher (rpc/launches.py) in place of what the sandbox gives to other commands."""

    __slots__ = ("announce", "direct", "label", "pairs", "umask")

    def __init__(self, pairs: Sequence[bytes], umask: int, label: str, direct: list[bytes] | None) -> None:
        self.pairs = pairs  # its variables
        self.umask = umask
        self.label = label
        self.direct = direct  # the program to run without a shell, where none is needed
        self.announce: Callable[[], None] = lambda: None  # emits the event of its end


class Processes:
    """The table. It holds only weak references: a process that its owner drops ends, and disappears from here."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._waiting: list[Event] = []  # one for each thread in `wait`
        self._count = 0
        self._running: dict[str, tuple[StartedCommand, ref[Process]]] = {}
        self._kept: dict[str, SharedProcess] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def begin(self, command: str, tty: bool, keep: str | None) -> StartedCommand:
        """A command that is about to be started, with an id of its own."""
        with self._lock:
            self._count += 1
            return StartedCommand(str(self._count), command, tty, keep)

    def add(self, started: StartedCommand, process: Process) -> None:
        """It was sent to the guest."""
        running = self._running
        # Without the lock, since it may be called at any moment; `wait` looks again soon enough.
        running[started.id] = started, ref(process, lambda _: running.pop(started.id, None))

    def remove(self, started: StartedCommand) -> None:
        """It has ended, or never ran."""
        with self._lock:
            self._running.pop(started.id, None)
            for one in self._waiting:
                one.set()

    def wait(self, seconds: float) -> None:
        """Waits until nothing runs any more, at most `seconds`."""
        from threading import Event

        until, ended = time.monotonic() + seconds, Event()
        with self._lock:
            self._waiting.append(ended)
        while self._running and (left := until - time.monotonic()) > 0:
            ended.wait(min(left, 0.1))  # a process that is garbage-collected sets no event
            ended.clear()
        with self._lock:
            self._waiting.remove(ended)

    def list(self) -> list[ProcessInfo]:
        """The running commands, in the order they were started."""
        from sandbox.info import ProcessInfo

        found = []
        for one, process in list(self._running.values()):
            living = process()
            if living is not None and living.pid is not None and living.result is None:
                found.append(ProcessInfo(living.pid, one.id, one.command, one.started, one.keep, one.tty))
        return found

    def keep(self, name: str, start: Callable[[], Process]) -> tuple[SharedProcessView, bool]:
        """The command kept under that name and True, or a new one, begun by `start`, and False."""
        from sandbox.shared_process import SharedProcess

        with self._lock:
            kept = self._kept.get(name)
            if kept is not None and not kept.ended:
                return kept.join(), True
        process = start()
        with self._lock:
            other = self._kept.get(name)
            if other is None or other.ended:
                self._kept = {each: one for each, one in self._kept.items() if not one.ended}
                self._kept[name] = new = SharedProcess(process)
                view = new.join(joined=False)
                new.start()
                return view, False
        process.close()  # another thread was faster
        return other.join(), True

    def connect(self, name: str) -> SharedProcessView:
        """Joins the command kept under that name. Raises NotFound."""
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None and not kept.ended:
                return kept.join()
            names = ", ".join(sorted(one for one, each in self._kept.items() if not each.ended))
        if not names:
            raise NotFound("no command is kept under {name!r}; none is kept", name=name)
        raise NotFound("no command is kept under {name!r}; there are {names}", name=name, names=names)

    def keeps(self) -> bool:
        """Whether a kept command runs."""
        return any(not kept.ended for kept in self._kept.values())
