"""Which engine builds the walls, and what a mode adds to the configuration."""

from __future__ import annotations

import sys

from sandbox.config.modes import MAX_LIMITS, default_limit, without_walls
from sandbox.errors import EngineUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config
    from sandbox.engines.base import Engine


def engine_name(config: Config) -> str:
    """The name of the engine for this configuration on this platform."""
    if without_walls(config):
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
        from sandbox.engines.seatbelt import Seatbelt

        return Seatbelt()
    if name == "qemu":
        from sandbox.engines.qemu.engine import Qemu

        return Qemu()
    raise EngineUnavailable("this release has no {name} engine; use bubblewrap (`engine: bubblewrap`)", name=name)


def default_pids(config: Config) -> int | None:
    """The limit on processes: the configured one, or else the mode's."""
    asked = config.limits.pids
    return asked if asked is not None else default_limit(config.mode, "pids")  # type: ignore[return-value]


def tightened(config: Config) -> Config:
    """`max`: changes to the project stay in a layer of their own, and what was not limited is. A branch is worked on in
    such a layer too. In a copy."""
    if config.mode != "max" and config.filesystem.branch is None:
        return config
    config = config.copy()
    config.filesystem.overlay = True
    if config.mode != "max":
        return config
    config.caches = []
    for name, most in MAX_LIMITS.items():
        if getattr(config.limits, name) is None:
            setattr(config.limits, name, most)
    return config
