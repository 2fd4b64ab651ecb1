"""What was asked for and this engine cannot do is an error, before anything is built."""

from __future__ import annotations

from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.config.model import Config
    from sandbox.engines.base import Engine


def require(config: Config, engine: Engine) -> None:
    """Raises ConfigError, naming the setting."""
    for path in _lacking(config, engine):
        if not engine.can.walls:
            raise ConfigError("needs walls, and mode off has none", path=path)
        raise ConfigError(f"the {engine.name} engine cannot do this; leave it out, or use another engine", path=path)


def _lacking(config: Config, engine: Engine) -> Iterator[str]:
    can, vfs = engine.can, config.vfs
    if config.filesystem.overlay and not can.overlay:
        yield "filesystem.overlay"
    if (vfs.mounts or vfs.direct_mounts) and not can.fuse:
        yield "vfs"
    if config.network.publish and can.gate == "proxy":
        yield "network.publish"
    if not can.limits:
        yield from (f"limits.{name}" for name in config.limits.fields if getattr(config.limits, name) is not None)
