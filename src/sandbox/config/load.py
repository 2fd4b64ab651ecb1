"""From files and flags to one configuration."""

from __future__ import annotations

from sandbox.config.model import Config
from sandbox.errors import ConfigError


def load(flags: dict[str, object], file: str | None = None) -> Config:
    """The configuration that `file` and then `flags` ask for. Raises ConfigError."""
    layers = [flags] if file is None else [read_file(file), flags]
    merged: dict[str, object] = {}
    for layer in layers:
        merged = merge(merged, layer)
    return Config.read(merged)


def merge(below: dict[str, object], above: dict[str, object]) -> dict[str, object]:
    """Mappings are merged; everything else, lists too, is replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def read_file(name: str) -> dict[str, object]:
    import yaml

    try:
        with open(name, encoding="utf-8") as file:
            data = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as problem:
        raise ConfigError(f"cannot be read: {problem.strerror}", file=name) from problem
    except yaml.YAMLError as problem:
        raise ConfigError(f"is not YAML: {problem}", file=name) from problem
    return data or {}
