"""Gives tenants their credential files, each in a directory where programs can replace it by writing and renaming.

Where the person's own directory is shown inside, the file in it is covered; ours is then mounted in its place,
read-only.
"""

from __future__ import annotations

import errno
import os

from sandbox.config.home import home
from sandbox.config.paths import is_beneath
from sandbox.errors import ConfigError
from sandbox.guards.mount_in_namespace import GIVEN
from sandbox.plan.mount_operations import Bind, Cover, Overlay, Tmpfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from sandbox.network.credentials.logins import Logins
    from sandbox.plan.plan import Plan

    class Inside(Protocol):
        """What is used of `Sandbox`. It acts with a tenant's rights, whatever an earlier tenant has left in a
        directory."""

        def mkdir(self, path: str, mode: int = 0o755, parents: bool = True) -> None: ...

        def write_file(self, path: str, content: bytes | str, mode: int = 0o644) -> None: ...

        def rename(self, old: str, new: str) -> None: ...

        def remove(self, path: str, recursive: bool = False) -> None: ...


def is_persons(plan: Plan, path: str) -> bool:
    """Whether a file created at `path` inside would be in one of the person's directories, rather than in one of the
    sandbox's own or one that it keeps for tenants."""
    staged = {bind.target: bind.source for bind in plan.binds}
    shown = [(target, None) for target, _ in plan.scratch] + [(bind.target, bind.source) for bind in plan.binds]
    shown.sort(key=lambda one: one[0].split("/"))  # the plan's own order
    for one in (*plan.layers, *plan.covers):
        if isinstance(one, Tmpfs):
            shown.append((one.path, None))
        elif isinstance(one, Bind) and one.source != one.path:
            shown.append((one.path, staged.get(one.source, one.source)))
        elif isinstance(one, Overlay) or (isinstance(one, Cover) and one.is_dir):
            shown.append((one.path, one.path))
    ours = os.path.realpath(home())
    # The last mount counts: it hides everything that was mounted there before.
    behind = next((source for target, source in reversed(shown) if is_beneath(path, target)), None)
    return behind is not None and not is_beneath(behind, ours)


class Furnishing:
    """What the tenants of one sandbox get from `logins`."""

    def __init__(self, logins: Logins, plan: Plan, shown_at: Callable[[str], list[str]]) -> None:
        """Adds to `plan` what must be there from the start. `shown_at`: where a path of the host is seen inside.

        Raises ConfigError."""
        self._files: dict[str, tuple[str, str]] = {}
        self._mounted = 0
        place = plan.environment.get("HOME") or os.path.expanduser("~")
        for path, (login, text) in logins.files(place).items():
            if not is_persons(plan, path):
                if not self._mounted_in_hidden(plan, path, text):
                    self._files[path] = login.path, text
            elif login.file and path in shown_at(os.path.realpath(login.file)):
                self._mount(plan, path, text)
            else:
                raise ConfigError(
                    "{place!r} is in a directory of yours that is shown inside; choose another place (`at`)",
                    place=path,
                    path=login.path,
                )
        settings = logins.git_settings()
        plan.files = [
            (name, mode, content + settings.encode()) if name == "/etc/gitconfig" else (name, mode, content)
            for name, mode, content in plan.files
        ]

    @property
    def paths(self) -> set[str]:
        """Where files will be written: nothing else may be there."""
        return set(self._files)

    def _mount(self, plan: Plan, path: str, text: str) -> None:
        plan.after_seal.append(Bind(path, self._source(plan, text), read_only=True, optional=True))

    def _mounted_in_hidden(self, plan: Plan, path: str, text: str) -> bool:
        """When the home is the project, one of its directories may be hidden by an empty one and also frozen. Nothing
        can be written there then, so the file is mounted before it is frozen. Returns whether that was needed."""
        frozen = (one for one in plan.covers if isinstance(one, Bind) and one.read_only and one.source == one.path)
        if not any(is_beneath(path, one.path) for one in frozen):
            return False
        empty = [one for one in plan.covers if isinstance(one, Tmpfs) and is_beneath(path, one.path)]
        if not empty:
            return False
        # The person's file is not there, so a cover would hide ours.
        plan.covers = [one for one in plan.covers if not (isinstance(one, Cover) and one.path == path)]
        at = plan.covers.index(empty[-1]) + 1
        plan.covers.insert(at, Bind(path, self._source(plan, text), read_only=True, make=True))
        return True

    def _source(self, plan: Plan, text: str) -> str:
        """The path where the guest writes the file before anything is mounted."""
        name = f"/etc/sandbox-credential-{self._mounted}"
        self._mounted += 1
        plan.files.append((name, GIVEN, text.encode()))
        return name

    def write(self, inside: Inside) -> None:
        """Writes the files, once the walls are built and before any tenant runs. Raises ConfigError."""
        for path, (setting, text) in self._files.items():
            beside = f"{path}.{os.urandom(4).hex()}"
            try:
                inside.mkdir(os.path.dirname(path), 0o700)
                inside.write_file(beside, text, 0o600)
                self._rename(inside, beside, path)
            except OSError as problem:
                reason = os.strerror(problem.errno or errno.EIO)
                raise ConfigError(
                    "cannot be written at {place!r} inside: {reason}", place=path, reason=reason, path=f"{setting}.at"
                ) from None

    def _rename(self, inside: Inside, beside: str, path: str) -> None:
        """Renames `beside` to `path`. A directory that an earlier tenant left there is removed: it must not prevent a
        start."""
        try:
            try:
                inside.rename(beside, path)
            except (IsADirectoryError, NotADirectoryError, FileExistsError):
                inside.remove(path, recursive=True)
                inside.rename(beside, path)
        except OSError:
            inside.remove(beside)
            raise
