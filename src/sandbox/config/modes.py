"""What a mode means where nothing was said: its limits, and whether there are walls at all.

Here, beneath the layers, because a project's file may only tighten what *holds*, and a default of the mode holds as
much as what somebody wrote down.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config

# What `standard` and `max` hold tenants to when nothing was asked for. A fork bomb must not take the machine.
STANDARD_PIDS = 4096
MAX_LIMITS = {"memory": 2**30, "cpus": 1.0, "pids": 512, "open_files": 1024, "file_size": 2**30}


def default_limit(mode: str, name: str) -> int | float | None:
    """The limit `limits.<name>` of a mode in which none was asked for.

    Root's processes escape RLIMIT_NPROC and moving them into a control group costs as much as all the other walls
    together, so for root the limit of `standard` must be asked for (docs/limits.md).
    """
    if mode == "max":
        return MAX_LIMITS.get(name)
    return STANDARD_PIDS if mode == "standard" and name == "pids" and os.geteuid() != 0 else None


def without_walls(config: Config) -> bool:
    """Whether commands run on the host as they are."""
    return not config.enabled or config.mode == "off" or config.engine == "none"
