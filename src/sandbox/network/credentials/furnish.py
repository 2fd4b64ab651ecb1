"""Giving tenants their credential files: each in a directory where programs can save it anew, by writing and renaming.

Where the person's own directory is shown inside, the file in it is covered; then ours is mounted in its place, and can
only be read.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from sandbox.errors import ConfigError
from sandbox.plan.mount_operations import Bind

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from sandbox.network.credentials.logins import Logins
    from sandbox.plan.plan import Plan

    class Inside(Protocol):
        """What is used of `Sandbox`: with a tenant's rights, whatever an earlier tenant has left in a directory."""

        def mkdir(self, path: str, mode: int = 0o755, parents: bool = True) -> None: ...

        def write_file(self, path: str, content: bytes | str, mode: int = 0o644) -> None: ...

        def rename(self, old: str, new: str) -> None: ...

        def remove(self, path: str, recursive: bool = False) -> None: ...


class Furnishing:
    """What one sandbox's tenants get of `logins`."""

    def __init__(self, logins: Logins, plan: Plan, shown_at: Callable[[str], list[str]]) -> None:
        """Adds to `plan` what is there when the walls stand. `shown_at`: where a path of the host is seen inside.

        Raises ConfigError."""
        self._files: dict[str, tuple[str, str]] = {}
        home = plan.environment.get("HOME") or os.path.expanduser("~")
        for path, (login, text) in logins.files(home).items():
            over = shown_at(os.path.realpath(login.file)) if login.file else []
            if path in over:
                self._mount(plan, path, text)
            else:
                self._files[path] = login.path, text
        settings = logins.git_settings()
        plan.files = [
            (name, mode, content + settings.encode()) if name == "/etc/gitconfig" else (name, mode, content)
            for name, mode, content in plan.files
        ]

    @property
    def paths(self) -> set[str]:
        """Where files will be written: nothing else may stand there."""
        return set(self._files)

    def _mount(self, plan: Plan, path: str, text: str) -> None:
        source = f"/etc/sandbox-credential-{sum(name.startswith('/etc/sandbox-cred') for name, _, _ in plan.files)}"
        plan.files.append((source, 0o600, text.encode()))
        plan.after_seal.append(Bind(path, source, read_only=True, optional=True))

    def write(self, inside: Inside) -> None:
        """Writes the files, when the walls stand and before any tenant runs. Raises ConfigError."""
        for path, (setting, text) in self._files.items():
            beside = f"{path}.{os.urandom(4).hex()}"
            try:
                inside.mkdir(os.path.dirname(path), 0o700)
                inside.write_file(beside, text, 0o600)
                try:
                    inside.rename(beside, path)
                except OSError:
                    inside.remove(beside)
                    raise
            except OSError as problem:
                reason = os.strerror(problem.errno or errno.EIO)
                raise ConfigError(
                    "cannot be written at {place!r} inside: {reason}", place=path, reason=reason, path=f"{setting}.at"
                ) from None
