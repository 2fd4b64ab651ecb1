"""Mounts covers on files that appeared in a running sandbox, and tells about them. Ends the sandbox if it cannot."""

from __future__ import annotations

import os
import stat

from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Protocol

    from sandbox.guards.appearances import Appeared
    from sandbox.guards.covers import Mask
    from sandbox.guards.frozen_files import FrozenFiles
    from sandbox.guards.views import Views

    class Tenants(Protocol):
        """`tenants.py`."""

        def stop(self) -> None: ...

        def let_go(self) -> None: ...

        @property
        def end(self) -> Callable[[str], object]: ...


MOST = 16384  # in one sandbox's life; the kernel gives it 100,000 mounts
FEW = 100  # recorded one by one

HIDDEN_LATE = Message(
    "blocked files appeared while the sandbox ran; each was hidden a moment later, and a program inside that waited "
    "for it may have read it first (`sandbox audit` lists them)"
)
TOO_MANY = Message(
    "more than {most} blocked files appeared while the sandbox ran, and further ones would not be hidden", most=MOST
)
THAWED = Message(
    "a protected file was replaced on the host while the sandbox ran, and could not be made read-only again "
    "(`sandbox audit` says which)"
)
REPLACED = Message(
    "a protected file was replaced while the sandbox ran; it was made read-only again a moment later, and a program "
    "inside that waited for it may have changed it first (`sandbox audit` lists them)"
)
HELD = Message(
    "a protected file was replaced while the sandbox ran, and a program could go on changing it, because it has it "
    "open (`sandbox audit` says which)"
)
FAILED = Message("a blocked file that appeared while the sandbox ran could not be hidden (`sandbox audit` says which)")


class LateCovers:
    """The covers of one sandbox. Calls `tell(summary, path, rule)` for each, and `notice` once."""

    def __init__(
        self,
        pid: int,
        views: Views,
        lifted: Collection[str],
        tell: Callable[[str, str, str], object],
        notice: Callable[[str], object],
        tenants: Tenants,
        frozen: FrozenFiles | None = None,
    ) -> None:
        """`pid` is a process in the sandbox's mount namespace. `lifted`: paths inside that the owner has uncovered."""
        self._pid = pid
        self._views = views
        self._lifted = lifted
        self._tell = tell
        self._notice = notice
        self._tenants = tenants
        self._frozen = frozen
        self._namespace = -1
        self._count = self._replaced = 0

    def open(self) -> None:
        """Raises OSError when the sandbox has ended. Idempotent."""
        if self._namespace < 0:
            self._namespace = os.open(f"/proc/{self._pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._namespace >= 0:
            os.close(self._namespace)
            self._namespace = -1

    def add(self, masks: dict[str, Mask]) -> None:
        """Covers these paths, where that has not been done already."""
        inside = {shown: path for path in masks for shown in self._views.inside(path) if shown not in self._lifted}
        failed = self._cover(inside, masks)
        if failed and self._cover({shown: inside[shown] for shown in failed}, masks) and self._alive():
            for shown, problem in failed.items():
                self._tell(f"a blocked file appeared and could not be covered: {problem}", inside[shown], "late-masks")
            self._tenants.end(FAILED)
        elif self._count > MOST:
            self._tenants.end(TOO_MANY)

    def freeze(self, appeared: Iterable[Appeared]) -> None:
        """Makes what somebody on the host has replaced read-only again. Ends the tenants if one could still write."""
        again = self._frozen.among(appeared) if self._frozen is not None else None
        if not again:
            return
        from sandbox.guards.mount_in_namespace import freeze

        inside = {shown: path for path in again for shown in self._views.inside(path)}
        for shown, problem in freeze(self._namespace, dict(sorted(inside.items()))):
            if problem and self._alive():
                self._tell(f"a protected file was replaced and could not be frozen: {problem}", inside[shown], "freeze")
                self._tenants.end(THAWED)
            elif problem is None:
                self._refrozen(inside[shown])

    def _refrozen(self, path: str) -> None:
        from sandbox.guards.open_for_writing import stays_open

        self._replaced += 1
        if self._replaced <= FEW or self._replaced % FEW == 0:
            told = f"a protected file was replaced and made read-only again (number {self._replaced})"
            self._tell(told, path, "freeze")
        if self._replaced == 1:
            self._notice(REPLACED)
        if stays_open(path) and self._alive():
            self._tell("a protected file was replaced, and is still open for writing", path, "freeze")
            self._tenants.end(HELD)

    def _cover(self, inside: dict[str, str], masks: dict[str, Mask]) -> dict[str, str]:
        """Returns what could not be covered, and why."""
        from sandbox.guards.mount_in_namespace import cover

        failed: dict[str, str] = {}
        there = {shown: is_dir for shown, path in inside.items() if (is_dir := _kind(path)) is not None}
        for shown, problem in cover(self._namespace, sorted(inside), there):
            if problem is None:
                self._covered(inside[shown], masks[inside[shown]].rule)
            elif problem:
                failed[shown] = problem
        return failed

    def _covered(self, path: str, rule: str) -> None:
        self._count += 1
        # A tenant can make thousands of such names, and must not fill the record.
        if self._count <= FEW or self._count % FEW == 0:
            self._tell(f"a blocked file appeared and was covered (number {self._count})", path, rule)
        if self._count == 1:
            self._notice(HIDDEN_LATE)

    def _alive(self) -> bool:
        return os.path.exists(f"/proc/{self._pid}/ns/mnt")


def _kind(path: str) -> bool | None:
    """Whether it is a directory; None if it is gone, or a link."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    return None if stat.S_ISLNK(mode) else stat.S_ISDIR(mode)
