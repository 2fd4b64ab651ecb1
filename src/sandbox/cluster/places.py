"""Places whose sandbox was closed, for the next one of the same program that asks for the same.

To be given a place by Ray and to give it back takes as long as everything else about a sandbox that is ready. So a
program that closes one sandbox and starts the next goes on in its place, for a second at most: then others, who may
wait for it, have their turn.
"""

from __future__ import annotations

import time
from threading import Condition, Lock, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST = 1.0  # seconds from when Ray gave the place


class Reservation:
    """Resources on one machine, reserved until `release`."""

    def __init__(self, group: Any, node: str, resources: Mapping[str, float] | None = None) -> None:
        self._group = group
        self.node = node
        self.resources = dict(resources or {})
        self.until = time.monotonic() + LONGEST
        self._lock = Lock()

    def release(self) -> None:
        """Gives them back. Idempotent."""
        if (group := self._taken()) is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(group)

    def renewed(self) -> Reservation | None:
        """The same place for another sandbox; None if it was given back. This object no longer has it then."""
        group = self._taken()
        if group is None:
            return None
        made = Reservation(group, self.node, self.resources)
        made.until = self.until
        return made

    def _taken(self) -> Any:
        with self._lock:
            group, self._group = self._group, None
        return group


class KeptPlaces:
    """One program's. A thread gives back what nobody took in time."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._kept: list[Reservation] = []
        self._thread: Thread | None = None
        self._closed = False

    def keep(self, place: Reservation) -> None:
        """Keeps the place of a sandbox that has ended in good order, or gives it back when its time is over."""
        renewed = place.renewed()
        if renewed is None:
            return
        with self._changed:
            if not self._closed and time.monotonic() < renewed.until:
                self._kept.append(renewed)
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="sandbox-places", daemon=True)
                    self._thread.start()
                self._changed.notify()
                return
        renewed.release()

    def take(self, resources: Mapping[str, float], without: Sequence[str]) -> Reservation | None:
        """One for the same resources, not on a machine of `without`. If there is none, nothing is kept any longer, as
        that may be what the request lacks."""
        with self._changed:
            for one in reversed(self._kept):
                if one.resources == resources and one.node not in without and time.monotonic() < one.until:
                    self._kept.remove(one)
                    return one
        self.empty()
        return None

    def empty(self) -> None:
        """Gives all of them back."""
        self._give_back(lambda one: True)

    def forget(self, node: str) -> None:
        """Gives back those on a machine that may be gone."""
        self._give_back(lambda one: one.node == node)

    def close(self) -> None:
        """Gives all of them back, and keeps no more. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self.empty()
        if self._thread is not None:
            self._thread.join()

    def _give_back(self, over: Any) -> None:
        with self._changed:
            gone = [one for one in self._kept if over(one)]
            self._kept = [one for one in self._kept if not over(one)]
        for one in gone:
            one.release()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._kept or self._closed)
                if self._closed:
                    return
                left = min(one.until for one in self._kept) - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
            now = time.monotonic()
            try:
                self._give_back(lambda one, now=now: one.until <= now)
            except Exception:  # noqa: BLE001 - Ray is gone, and with it every place
                continue
