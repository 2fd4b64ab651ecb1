"""Ends the connections to a machine's sandboxes when Ray says that the machine is gone.

Connections to a machine that was killed end by themselves, and the kernel notices a network that is cut. A machine that
hangs or was stopped keeps its connections: Ray checks the health of each machine, and we ask Ray.
"""

from __future__ import annotations

from threading import Condition, Thread
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.cluster.nodes import RayNodes

PAUSE = 0.5  # seconds between two questions, while there is anybody to notify


class NodeWatch:
    """A cluster's thread. It sleeps while there is nobody to notify."""

    def __init__(self, nodes: RayNodes) -> None:
        self._nodes = nodes
        self._told: dict[object, tuple[str, Callable[[], object]]] = {}
        self._changed = Condition()
        self._thread: Thread | None = None
        self._ended = False

    def add(self, key: object, node: str, lost: Callable[[], object]) -> None:
        """Calls `lost` when that machine is gone, unless `remove` comes first."""
        with self._changed:
            self._told[key] = node, lost
            if self._thread is None:
                self._thread = Thread(target=self._run, name="sandbox-watch", daemon=True)
                self._thread.start()
            self._changed.notify()

    def remove(self, key: object) -> None:
        """Idempotent."""
        with self._changed:
            self._told.pop(key, None)

    def close(self) -> None:
        """Stops notifying. Idempotent."""
        with self._changed:
            self._ended = True
            self._told.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._told or self._ended)
                if self._ended or self._changed.wait_for(lambda: self._ended, PAUSE):
                    return
            try:
                alive = {one["NodeID"] for one in self._nodes.alive()}
            except (SandboxError, OSError, RuntimeError):
                continue  # Ray itself does not answer: only the connections' own ends count then
            with self._changed:
                gone = [(key, lost) for key, (node, lost) in self._told.items() if node not in alive]
                for key, _ in gone:
                    del self._told[key]
            for _, lost in gone:
                lost()
