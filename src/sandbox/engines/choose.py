"""Which engine builds the walls, and what a mode adds to what was asked."""

from __future__ import annotations

import os
import sys

from sandbox.errors import EngineUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config
    from sandbox.engines.base import Engine

# What `standard` and `max` hold tenants to when nothing was asked for. A fork bomb must not take the machine.
STANDARD_PIDS = 4096
MAX_LIMITS = {"memory": 2**30, "cpus": 1.0, "pids": 512, "open_files": 1024, "file_size": 2**30}


def engine_name(config: Config) -> str:
    """Which engine this configuration means on this platform."""
    if not config.enabled or config.mode == "off":
        return "none"
    if config.engine == "auto":
        return "seatbelt" if sys.platform == "darwin" else "bubblewrap"
    return config.engine


def choose(config: Config) -> Engine:
    """The engine for this configuration. Raises EngineUnavailable for one that this platform cannot have."""
    name = engine_name(config)
    if name == "bubblewrap":
        from sandbox.engines.bubblewrap import Bubblewrap

        return Bubblewrap()
    if name == "none":
        from sandbox.engines.none import NoWalls

        return NoWalls()
    if name == "seatbelt":
        raise EngineUnavailable("seatbelt has no guest inside: it is for `sandbox run` and `srt`, not for `Sandbox`")
    raise EngineUnavailable(f"the {name} engine is not part of this release; bubblewrap is (`engine: bubblewrap`)")


def default_pids(config: Config) -> int | None:
    """The limit on processes: what was asked for, else the mode's own.

    Root's processes escape RLIMIT_NPROC and moving them into a control group costs as much as all the other walls
    together, so for root the limit of `standard` must be asked for (docs/limits.md).
    """
    if config.limits.pids is not None:
        return config.limits.pids
    return STANDARD_PIDS if config.mode == "standard" and os.geteuid() != 0 else None


def tightened(config: Config) -> Config:
    """`max`: changes to the project stay in a layer of their own, and what was not limited is."""
    if config.mode != "max":
        return config
    config.filesystem.overlay = True
    for name, most in MAX_LIMITS.items():
        if getattr(config.limits, name) is None:
            setattr(config.limits, name, most)
    return config
