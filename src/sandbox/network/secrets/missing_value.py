"""A secret's source without a value."""

from __future__ import annotations

from sandbox.errors import ConfigError


class Missing(ConfigError):
    """A source has no value now. Only a request that needs it fails, so that a run without it works."""
