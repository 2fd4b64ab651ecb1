"""Files that have other content inside (`filesystem.replaced`)."""

from __future__ import annotations

import os

from sandbox.guards.mount_in_namespace import GIVEN
from sandbox.plan.mount_operations import Bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.config.model import Filesystem
    from sandbox.plan.plan import Plan


def replace(plan: Plan, filesystem: Filesystem, shown_at: Callable[[str], list[str]]) -> None:
    """Mounts each text over its file, wherever that is seen inside (`shown_at`), read-only."""
    for number, (path, text) in enumerate(filesystem.replaced.items()):
        source = f"{plan.own_files}/sandbox-replaced-{number}"
        plan.files.append((source, GIVEN, text.encode()))
        real = os.path.realpath(os.path.expanduser(path))
        for place in (real,) if filesystem.show_host else shown_at(real):
            plan.after_seal.append(Bind(place, source, read_only=True, optional=True))
