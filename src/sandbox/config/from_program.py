"""Configuration from a program or a client: a model, a mapping in one of the dialects, or nothing."""

from __future__ import annotations

from sandbox.config.model import Config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Given = Config | Mapping[str, Any] | None


def read_config(config: Given) -> Config:
    """The configuration as a new model; the caller's object is not changed. Raises ConfigError."""
    if isinstance(config, Config):
        return config.copy()
    given = dict(config or {})
    if any(name in given for name in ("resources", "env", "network", "filesystem")):
        from sandbox.config.dialects import from_client, looks_like_srt

        if "resources" in given or "env" in given or looks_like_srt(given):
            given = from_client(given)
    return Config.read(given)
