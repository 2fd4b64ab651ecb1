"""Receives what the tripwires of a running sandbox report (`tripwire.py`): who touched a cover, and how.

Most sandboxes never touch one, so there is no thread until the first report.
"""

from __future__ import annotations

import os
from _thread import RLock  # `threading` is loaded later: see `readiness.py`

from sandbox.errors import GuestError, SandboxError
from sandbox.readiness import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Iterator
    from threading import Thread
    from typing import Any, Protocol

    from sandbox.audit.file_entries import Touches
    from sandbox.guards.file_asks import FileAsks

    class ReportSource(Protocol):
        """What reports: an engine's `Running`."""

        def report_socket(self) -> _socket.socket: ...

        def reports(self, patience: float | None = None) -> Iterator[dict[str, Any]]: ...

        def finish(self) -> None: ...


_PATIENCE = 5.0  # seconds; a guest that does not react is killed by its engine
OPERATIONS = {"read": "read", "write": "write", "list": "list", "lookup": "read"}  # the guest's word: the record's


class Reports:
    """Receives the reports of one sandbox's tripwires, until closed."""

    def __init__(self, running: ReportSource, touches: Touches, ask: FileAsks | None = None) -> None:
        """`ask`: the owner is asked about what is touched."""
        self._ask = ask
        self._running = running
        self._touches = touches
        self._lock = RLock()
        self._closed = False
        self._thread: Thread | None = None
        self._watch = Watch([running.report_socket()], self._start)

    def _start(self) -> None:
        """Something was reported, or the sandbox has ended."""
        from threading import Thread

        with self._lock:
            if not self._closed:
                thread = Thread(target=self._receive, name="sandbox-tripwire", daemon=True)
                thread.start()
                self._thread = thread  # only now: `close` waits for a thread that runs, and otherwise receives itself

    def close(self) -> None:
        """Ends the sandbox and returns when all its reports are recorded. Idempotent."""
        with self._lock:
            closed, self._closed = self._closed, True
        self._watch.cancel()
        self._running.finish()
        if self._thread is None:
            if not closed:
                self._receive(_PATIENCE)  # what came at the very end
            return
        from threading import current_thread

        if self._thread is not current_thread():  # a forgotten sandbox is collected in any thread
            self._thread.join(_PATIENCE)

    def _receive(self, patience: float | None = None) -> None:
        try:
            for message in self._running.reports(patience):
                if message["t"] == "tripped":
                    self._tripped(message)
        except (GuestError, OSError) as problem:
            self._touches.record.write("policy_decision", f"tripwires: {problem}", severity="error")

    def _tripped(self, message: dict[str, object]) -> None:
        path, name, pid, comm = (message.get(key) for key in ("path", "name", "pid", "comm"))
        operation = OPERATIONS.get(str(message.get("op")))
        rule = self._touches.rules.get(os.fsdecode(path)) if isinstance(path, bytes) else None
        if operation is None or rule is None or type(pid) is not int or not isinstance(comm, str):
            raise GuestError("the guest reported what it has no tripwire for")
        touched = os.fsdecode(path)  # type: ignore[arg-type]
        if isinstance(name, bytes):
            touched += f"/{os.fsdecode(name[:255])}"
        try:
            self._touches.tell(touched, operation, rule, pid, comm[:16])
        except SandboxError:
            return  # the disk is full: it was refused all the same, and the next one may be recorded again
        if self._ask is not None:
            self._ask.touched(os.fsdecode(path), operation, rule, pid, comm[:16])  # type: ignore[arg-type]
