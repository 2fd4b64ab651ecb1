"""An overlay project's changes: the part of `Sandbox` that shows them, carries them over, or throws them away."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sandbox.config.home import home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.vfs.changes import Change
    from sandbox.vfs.workspace import Applied, Workspace


class ChangeMethods(ABC):
    """What `Sandbox` can do with changes. Only `Sandbox` derives from it, and sets the attributes declared here."""

    id: str
    _closed: bool

    def changes(self) -> list[Change]:
        """Returns what tenants changed in an overlay project (`filesystem.overlay`), compared with the host's files.

        Works after `close`, too. Raises NotFound when the sandbox keeps no changes.
        """
        return self._workspace().changes()

    def apply(self, paths: Sequence[str] | None = None, overwrite: bool = False) -> Applied:
        """Carries changes over to the host's files: all of them, or those at or below `paths`. See docs/overlay.md.

        What the host changed meanwhile is refused, unless `overwrite` is set. Returns what was applied and, with the
        reason, what was refused. Works after `close`, too. Raises NotFound when the sandbox keeps no changes.
        """
        return self._workspace().apply(paths, overwrite=overwrite)

    def discard(self) -> None:
        """Ends the sandbox and throws the changes away. Raises NotFound when the sandbox keeps no changes."""
        workspace = self._workspace()
        self.close()
        workspace.discard()

    @abstractmethod
    def close(self) -> None:
        """Ends the sandbox."""

    def _workspace(self) -> Workspace:
        from sandbox.vfs.workspace import Workspace

        return Workspace.find(home(), self.id, ended=self._closed)
