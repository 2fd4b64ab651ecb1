"""Searches all host directories that a sandbox shows, and remembers what is blocked for later runs."""

from __future__ import annotations

import os
from time import time

from sandbox.config.home import home
from sandbox.guards.blocked_files import BlockedFiles
from sandbox.guards.covers import Covers
from sandbox.guards.search import Search, search

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.config.model import Config, Filesystem
    from sandbox.guards.views import Views

DAY = 86400


def signs(config: Config) -> bool:
    """Whether there can be files that a signer depends on (`signing_files.py`). Cheap: every sandbox asks."""
    signing = config.signing
    return bool(signing.keystore or signing.command or signing.contracts) or os.path.exists(f"{home()}/signing/files")


def secret_files(config: Config) -> dict[str, str]:
    """The files that the gate reads secrets from, each with the rule that blocks it."""
    secrets = config.network.secrets
    found = {one.from_file: f"network.secrets.{name}.from_file" for name, one in secrets.items() if one.from_file}
    for name, entry in config.credentials.items():
        if entry.file:
            found[entry.file] = f"credentials.{name}.file"
        for variable, one in entry.variables.items():
            if one.from_file:
                found[one.from_file] = f"credentials.{name}.variables.{variable}.from_file"
    if signs(config):
        from sandbox.guards.signing_files import keystores

        found.update(keystores(config))
    return found


def hidden_now(config: Config, tops: Sequence[str]) -> Covers:
    """What a sandbox that shows these directories would hide and freeze: by the same rules, and by what earlier runs
    have blocked. Nothing is written down. Raises SandboxError."""
    shown = [os.path.realpath(one) for one in tops if os.path.lexists(one)]
    return search(config.filesystem, shown, secrets=secret_files(config), blocked_before=BlockedFiles(home())).found


class Scanner:
    """Searches the same trees by the same rules, as often as it is asked."""

    def __init__(
        self,
        filesystem: Filesystem,
        views: Views,
        own: Sequence[str] = (),
        secrets: Mapping[str, str] | None = None,
        hidden: Sequence[str] = (),
    ) -> None:
        self.filesystem = filesystem
        self.views = views
        self.own = own
        self.secrets = dict(secrets or {})
        self.hidden = hidden

    def look(self) -> Search:
        """Finds what to cover or freeze, and writes down what is blocked before anybody can move it.

        Raises SandboxError when that cannot be written."""
        blocked_before = BlockedFiles(home())
        done = search(
            self.filesystem,
            self.views.roots,
            self.own,
            secrets=self.secrets,
            blocked_before=blocked_before,
            hidden=self.hidden,
        )
        blocked_before.searched(self.views.roots, int(time()) // DAY)
        done.kept = blocked_before.save()
        done.looker = self
        return done

    def again(self, before: Search) -> Search:
        """A search that has looked at nothing yet, but knows the links that the one before has met."""
        made = Search(self.filesystem, self.views.roots, Covers(), BlockedFiles(home()), self.hidden)
        if before.ways is not None:
            made.ways = before.ways.for_search(made)
        return made
