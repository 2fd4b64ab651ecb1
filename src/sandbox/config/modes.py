"""A mode's defaults: its limits, and whether there is isolation.

They are below the layers because a project's file may only tighten what *applies*, and a mode's default applies as
much as a written setting.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config

# The limits of `standard` and `max` when none are set. A fork bomb must not take the machine down.
STANDARD_PIDS = 4096
MAX_LIMITS = {"memory": 2**30, "cpus": 1.0, "pids": 512, "open_files": 1024, "file_size": 2**30}


def default_limit(mode: str, name: str) -> int | float | None:
    """The limit `limits.<name>` of a mode when it is not set.

    RLIMIT_NPROC does not apply to root, and a control group takes as long as the rest of the isolation, so root must
    set the limit of `standard` explicitly (docs/limits.md).
    """
    if mode == "max":
        return MAX_LIMITS.get(name)
    return STANDARD_PIDS if mode == "standard" and name == "pids" and os.geteuid() != 0 else None


def without_walls(config: Config) -> bool:
    """Whether commands run on the host without isolation."""
    return not config.enabled or config.mode == "off" or config.engine == "none"
