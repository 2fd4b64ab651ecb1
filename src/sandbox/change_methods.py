"""An overlay project's changes: the part of `Sandbox` that shows them, carries them over, or throws them away."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sandbox.config.home import home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType as Lock
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from sandbox.engines.base import Running
    from sandbox.vfs.changes import Change
    from sandbox.vfs.workspace import Applied, Workspace

    T = TypeVar("T")


class ChangeMethods(ABC):
    """What `Sandbox` can do with changes. Only `Sandbox` derives from it, and sets the attributes declared here."""

    id: str
    _closed: bool
    _paused: bool
    _saving: Lock  # held while tenants are stopped
    _running: Running

    def changes(self) -> list[Change]:
        """Returns what tenants changed in an overlay project (`filesystem.overlay`), compared with the host's files.

        Works after `close`, too. Raises NotFound when the sandbox keeps no changes. While it runs, tenants are stopped
        for the moment that this takes; if one cannot be stopped, raises SandboxError.
        """
        return self._while_still(self._workspace().changes)

    def apply(self, paths: Sequence[str] | None = None, overwrite: bool = False) -> Applied:
        """Carries changes over to the host's files: all of them, or those at or below `paths`. See docs/overlay.md.

        What the host changed meanwhile is refused, unless `overwrite` is set. Returns what was applied and, with the
        reason, what was refused. Works after `close`, too. Raises NotFound when the sandbox keeps no changes. While it
        runs, tenants are stopped meanwhile; if one cannot be stopped, raises SandboxError.
        """
        return self._apply_reviewed(paths, overwrite, None)

    def _apply_reviewed(self, paths: Sequence[str] | None, overwrite: bool, reviewed: str | None) -> Applied:
        """`reviewed`: the digest of the changes that somebody has seen; others are not applied."""
        workspace = self._workspace()
        return self._while_still(lambda: workspace.apply(paths, overwrite=overwrite, reviewed=reviewed))

    def discard(self) -> None:
        """Ends the sandbox and throws the changes away. Raises NotFound when the sandbox keeps no changes."""
        workspace = self._workspace()
        self.close()
        workspace.discard()

    @abstractmethod
    def close(self) -> None:
        """Ends the sandbox."""

    def _while_still(self, work: Callable[[], T]) -> T:
        """Does `work` while no tenant runs: what is compared is then what is applied. Raises SandboxError."""
        from sandbox.engines.base import GuestRunning
        from sandbox.errors import SandboxClosed, SandboxError

        with self._saving:
            running = self._running
            if self._closed or self._paused or not isinstance(running, GuestRunning):
                return work()
            try:
                running.stop_tenants()
            except SandboxClosed:
                return work()
            except OSError as problem:
                reason = problem.strerror
                raise SandboxError("a program inside cannot be stopped: {reason}", reason=reason) from problem
            try:
                return work()
            finally:
                try:
                    running.let_tenants_go()
                except (OSError, SandboxError):
                    pass  # they have ended

    def _workspace(self) -> Workspace:
        from sandbox.vfs.workspace import Workspace

        return Workspace.find(home(), self.id, ended=self._closed)
