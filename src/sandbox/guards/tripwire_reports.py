"""Receives what the tripwires of a running sandbox report (`tripwire.py`): who touched a cover, and how."""

from __future__ import annotations

import os

from sandbox.errors import GuestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Protocol

    from sandbox.audit.file_entries import Touches
    from sandbox.guards.file_asks import FileAsks

    class Reporting(Protocol):
        """What reports: an engine's `Running`."""

        def reports(self) -> Iterator[dict[str, Any]]: ...

        def finish(self) -> None: ...


OPERATIONS = {"read": "read", "write": "write", "list": "list", "lookup": "read"}  # the guest's word: the record's


class Reports:
    """Receives the reports of one sandbox's tripwires, until closed."""

    def __init__(self, running: Reporting, touches: Touches, ask: FileAsks | None = None) -> None:
        """`ask`: the owner is asked about what is touched."""
        self._ask = ask
        self._running = running
        self._touches = touches
        from threading import Thread

        self._thread = Thread(target=self._run, name="sandbox-tripwire", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the sandbox and returns when all its reports are recorded. Idempotent."""
        self._running.finish()
        from threading import current_thread

        if self._thread is not current_thread():  # a forgotten sandbox is collected in any thread
            self._thread.join(5.0)  # a guest that does not react is killed by its engine

    def _run(self) -> None:
        try:
            for message in self._running.reports():
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
        self._touches.tell(touched, operation, rule, pid, comm[:16])
        if self._ask is not None:
            self._ask.touched(os.fsdecode(path), operation, rule, pid, comm[:16])  # type: ignore[arg-type]
