"""srt's `credentials`: files and variables whose real values tenants must not read."""

from __future__ import annotations

from sandbox.config.dialects.table import entries
from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Keys that say how a part of a value is masked.
_PARTS = ("extract", "onExtractNoMatch", "decode", "maskClaims", "maskDuplicates")


def credential_files(value: object) -> dict[str, Any]:
    """`credentials.files`: `deny` alone."""
    paths = []
    for entry in entries(value):
        _check(entry, "path")
        if entry["mode"] == "mask":
            raise ConfigError("only mode deny is supported for files; for a masked credential, use network.secrets")
        paths.append(entry["path"])
    return {"filesystem.deny_read": paths}


def credential_variables(value: object) -> dict[str, Any]:
    """`credentials.envVars`: `deny`, and `mask` of a whole value."""
    blocked, secrets, placeholders = [], {}, {}
    for entry in entries(value):
        _check(entry, "name")
        name = entry["name"]
        if entry["mode"] == "deny":
            blocked.append(name)
            continue
        if parts := [key for key in _PARTS if key in entry]:
            raise ConfigError("{key} is not supported: the whole value is masked", key=", ".join(parts))
        if entry.get("injectHosts") == []:
            raise ConfigError("injectHosts is empty: the value would go nowhere")
        # No list of hosts means every allowed one; see `srt.translate`.
        secrets[name] = {"from_env": name, "hosts": entry.get("injectHosts")}
        placeholders[name] = f"${{{name}}}"
    return {"environment.block": blocked, "network.secrets": secrets, "environment.set": placeholders}


def _check(entry: dict[str, Any], subject: str) -> None:
    if not isinstance(entry.get(subject), str):
        raise ConfigError("an entry needs a {subject}", subject=subject)
    if entry.get("mode") not in ("deny", "mask"):
        raise ConfigError("mode must be deny or mask, not {mode!r}", mode=entry.get("mode"))
    unknown = set(entry) - {subject, "mode", "injectHosts", *_PARTS}
    if unknown:
        raise ConfigError("unknown keys: {keys}", keys=", ".join(sorted(unknown)))
