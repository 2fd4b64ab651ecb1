"""Refuses settings that the engine does not support, before anything is built."""

from __future__ import annotations

from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.config.model import Config
    from sandbox.engines.base import Engine

TIMES = ("timeout", "lifetime", "idle_timeout")  # enforced by the owner with every engine


def require(config: Config, engine: Engine) -> None:
    """Raises ConfigError, with the path of the setting, for one that the engine does not support."""
    for path in _lacking(config, engine):
        if not engine.can.walls:
            raise ConfigError("needs isolation, which mode off does not have", path=path)
        raise ConfigError(
            "the {name} engine does not support this; remove it or use another engine", name=engine.name, path=path
        )


def _lacking(config: Config, engine: Engine) -> Iterator[str]:
    can, vfs = engine.can, config.vfs
    if config.filesystem.overlay and not can.overlay:
        yield "filesystem.overlay"
    yield from engine.ignores(config)
    if config.image is not None and not can.own_root:
        from sandbox.config.image_choice import asked_image

        if asked_image(config) is not None:
            yield "image"
    if (vfs.mounts or vfs.direct_mounts) and not can.fuse:
        yield "vfs"
    if config.state.keep and (not can.own_root or config.filesystem.show_host):
        yield "state.keep"
    if vfs.file_events and not can.descriptors:
        yield "vfs.file_events"
    if config.filesystem.ask and not (can.tripwires and can.namespace):  # an answer lifts the cover
        yield "filesystem.ask"
    if config.network.ask and can.gate == "none":
        yield "network.ask"
    if config.network.publish and can.gate == "proxy":
        yield "network.publish"
    if config.network.unix_sockets and not can.own_root:
        yield "network.unix_sockets"
    if not can.limits:
        asked = (name for name in config.limits.fields if getattr(config.limits, name) is not None)
        yield from (f"limits.{name}" for name in asked if name not in TIMES)
