"""Other products' spellings of the same settings, each translated to our model.

`uds`: the `sandbox:` block of `.uds/config.yaml`. `srt`: settings of Anthropic's sandbox-runtime. `create`: parameters
of the JSON-RPC method. `manager`: Milady's SandboxManagerConfig. Each has `translate(data) -> Translated`.
"""

from __future__ import annotations

from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sandbox.config.dialects.table import Translated
    from sandbox.config.files import SourceFile


def translate(source: SourceFile) -> dict[str, Any]:
    """A file's settings in our spelling, whichever of the file dialects it is written in."""
    name = source.file.replace("\\", "/")
    if name.endswith("/.uds/config.yaml"):
        from sandbox.config.dialects import uds as dialect
    elif name.endswith(".json") and looks_like_srt(source.data):
        from sandbox.config.dialects import srt as dialect  # type: ignore[no-redef]
    else:
        return source.data
    translated = _without_masks(dialect.translate(source.data))
    source.spelled = translated.spelled
    return translated.data


def spelled(source: SourceFile, path: str) -> str:
    """The path of a setting as the file spells it."""
    head, tail = path, ""
    while head:
        if head in source.spelled:
            return source.spelled[head] + tail
        cut = max(head.rfind("."), head.rfind("["), 0)
        head, tail = head[:cut], path[cut:]
    return path


def from_client(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A client's parameters of `create`, in its own spelling or srt's, in ours. Raises ConfigError."""
    from sandbox.config.dialects import create
    from sandbox.config.dialects.table import joined

    if not looks_like_srt(asked):
        return create.translate(asked).data
    from sandbox.config.dialects import srt

    tops = {key.partition(".")[0] for key in srt.TABLE}
    found = _without_masks(srt.translate({key: value for key, value in asked.items() if key in tops})).data
    return joined(found, create.translate({key: value for key, value in asked.items() if key not in tops}).data)


def _without_masks(translated: Translated) -> Translated:
    """Masks hold secrets, which only srt's own entrances read. Without them, what is to be masked would be shown."""
    if translated.masked:
        raise ConfigError(
            "mode mask works only with `sandbox srt` and agent-sandbox/srt: use mode deny, or network.secrets",
            path=translated.masked[0]["setting"],
        )
    return translated


def looks_like_srt(data: Mapping[str, Any]) -> bool:
    """Whether settings have a key that only srt's have."""
    sections = [(name, data[name]) for name in ("filesystem", "network") if isinstance(data.get(name), dict)]
    keys = [f"{name}.{key}" for name, section in sections for key in section]
    if not any(key != key.lower() for key in keys):
        return False  # srt's keys are in camel case
    from sandbox.config.dialects.srt import TABLE

    return any(key in TABLE or any(known.startswith(f"{key}.") for known in TABLE) for key in keys)
