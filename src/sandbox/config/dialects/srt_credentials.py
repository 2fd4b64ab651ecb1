"""srt's `credentials`: files and variables whose real values tenants must not read."""

from __future__ import annotations

from sandbox.config.dialects.table import entries, text_list
from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Keys that say which part of a text is masked.
_PARTS = ("extract", "onExtractNoMatch", "decode", "maskClaims", "maskDuplicates")
_NO_MATCH = ("warn", "deny", "error")


def credential_files(value: object) -> dict[str, Any]:
    """`credentials.files`. Files to `mask` are masked when they are read (`network/credentials/masks.py`)."""
    paths, masked = [], []
    for entry in entries(value):
        _check(entry, "path")
        if entry["mode"] == "deny":
            paths.append(entry["path"])
        else:
            masked.append(_mask(entry, "path", "file", "credentials.files"))
    return {"filesystem.deny_read": paths, "masked": masked}


def credential_variables(value: object) -> dict[str, Any]:
    """`credentials.envVars`: the same for variables."""
    blocked, masked = [], []
    for entry in entries(value):
        _check(entry, "name")
        if entry["mode"] == "deny":
            blocked.append(entry["name"])
        else:
            masked.append(_mask(entry, "name", "variable", "credentials.envVars"))
    return {"environment.block": blocked, "masked": masked}


def _mask(entry: dict[str, Any], subject: str, ours: str, setting: str) -> dict[str, Any]:
    if entry.get("injectHosts") == []:
        raise ConfigError("injectHosts is empty: the value would go nowhere")
    # No list of hosts means every allowed one; see `srt.translate`.
    hosts = text_list(entry["injectHosts"]) if "injectHosts" in entry else None
    parts = {key: entry[key] for key in _PARTS if key in entry}
    return {ours: entry[subject], "hosts": hosts, "setting": setting, **parts}


def _check(entry: dict[str, Any], subject: str) -> None:
    if not isinstance(entry.get(subject), str):
        raise ConfigError("an entry needs a {subject}", subject=subject)
    if entry.get("mode") not in ("deny", "mask"):
        raise ConfigError("mode must be deny or mask, not {mode!r}", mode=entry.get("mode"))
    unknown = set(entry) - {subject, "mode", "injectHosts", *_PARTS}
    if unknown:
        raise ConfigError("unknown keys: {keys}", keys=", ".join(sorted(unknown)))
    _check_parts(entry)


def python_pattern(pattern: str) -> str:
    """A JavaScript pattern for Python: named groups are written differently."""
    import re  # here and below, because few settings have a pattern and every run of `srt` imports this module

    return re.sub(r"\(\?<(?![=!])", "(?P<", pattern)


def _check_parts(entry: dict[str, Any]) -> None:
    if "extract" in entry:
        import re

        try:
            groups = re.compile(python_pattern(entry["extract"])).groups
        except (re.error, TypeError) as problem:
            raise ConfigError("extract is not a valid regular expression: {problem}", problem=problem) from None
        if not groups:
            raise ConfigError("extract must have a group: its first one is what is masked")
    if entry.get("onExtractNoMatch", "warn") not in _NO_MATCH:
        raise ConfigError("must be one of: {choices}", choices=", ".join(_NO_MATCH))
    if entry.get("decode", "jwt") != "jwt":
        raise ConfigError("must be one of: {choices}", choices="jwt")
    if "maskClaims" in entry and (not text_list(entry["maskClaims"]) or "decode" not in entry):
        raise ConfigError("maskClaims is a list of names, and needs decode")
    if not isinstance(entry.get("maskDuplicates", False), bool):
        raise ConfigError("must be true or false")
