"""Tells the sandboxes of a machine that it is gone, when Ray says so.

A machine that is killed ends its connections by itself, and a network that is cut is noticed by the kernel. One that is
there and does nothing (stopped, hung) keeps its connections: Ray asks each machine how it is, and we ask Ray.
"""

from __future__ import annotations

from threading import Condition, Thread
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.cluster.nodes import Nodes

PAUSE = 0.5  # seconds between two questions, while there is somebody to tell


class NodeWatch:
    """A cluster's thread. It sleeps while there is nobody to notify."""

    def __init__(self, nodes: Nodes) -> None:
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
                continue  # Ray itself does not answer: connections tell what they know
            with self._changed:
                gone = [(key, lost) for key, (node, lost) in self._told.items() if node not in alive]
                for key, _ in gone:
                    del self._told[key]
            for _, lost in gone:
                lost()
