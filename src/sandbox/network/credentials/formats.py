"""Credential files in their formats: finds the strings in a file, and replaces some of them.

Everything else in a file (comments, order, numbers) stays as it is; JSON is rewritten with the same content. The copy
for inside has no comments: people comment out old tokens.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox.network.credentials import text_formats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.network.secrets.field_paths import Keys


class Leaf(NamedTuple):
    """A string in a file. `number` counts the strings at the same path, where a format allows several."""

    keys: Keys
    value: str
    number: int = 0


class UnreadableCredentials(Exception):
    """A file is not in its format. The message never repeats what is in it."""


def leaves(text: str, format: str) -> list[Leaf]:
    """Every string in the file, in its order. Raises UnreadableCredentials."""
    try:
        if format == "json":
            return _numbered(_walked(_json(text), ()))
        if format == "toml":
            return _numbered(_walked(_toml(text), ()))
        return _numbered((span.keys, span.value) for span in text_formats.spans(text, format))
    except (ValueError, RecursionError):
        raise UnreadableCredentials(f"not {format}") from None


def changed(text: str, format: str, new: Mapping[tuple[Keys, int], Any], *, comments: bool = True) -> str:
    """The file with new values in some places, and with its comments only if `comments`. In JSON, a place need not
    exist yet. Raises UnreadableCredentials."""
    try:
        if format == "json":
            return _changed_json(text, new)
        if format == "toml":
            return _changed_toml(text if comments else _TOML.sub(_without_comment, text), new)
        return text_formats.replaced(text, format, new, comments=comments)
    except (ValueError, RecursionError):
        raise UnreadableCredentials(f"not {format}") from None


def _numbered(found: Any) -> list[Leaf]:
    seen: dict[Keys, int] = {}
    out = []
    for keys, value in found:
        out.append(Leaf(keys, value, seen.get(keys, 0)))
        seen[keys] = seen.get(keys, 0) + 1
    return out


def _walked(data: Any, keys: Keys) -> Any:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _walked(value, (*keys, str(key)))
    elif isinstance(data, list):
        for at, value in enumerate(data):
            yield from _walked(value, (*keys, str(at)))
    elif isinstance(data, str):
        yield keys, data


def _json(text: str) -> Any:
    data = json.loads(text or "{}")
    if not isinstance(data, dict):
        raise ValueError
    return data


def _changed_json(text: str, new: Mapping[tuple[Keys, int], Any]) -> str:
    data = _json(text)
    for (keys, _), value in new.items():
        place = data
        for key in keys[:-1]:
            if isinstance(place, list):
                place = place[int(key)]
            else:
                place = place.setdefault(key, {})
                if place is None:
                    raise ValueError
        if isinstance(place, list):
            place[int(keys[-1])] = value
        else:
            place[keys[-1]] = value
    indent = 2 if "\n" in text.strip() or not text.strip() else None
    end = "\n" if text.endswith("\n") else ""
    separators = (",", ": ") if indent else (", ", ": ") if '": ' in text else (",", ":")
    return json.dumps(data, indent=indent, separators=separators, ensure_ascii=False) + end


_TOML = re.compile(
    r'"""(?:\\.|[^\\])*?"""+|"(?:\\.|[^"\\\n])*"'
    r"|'''.*?'''+|'[^'\n]*'|#[^\n]*",
    re.DOTALL,
)


def _without_comment(found: re.Match[str]) -> str:
    return "#" if found[0][0] == "#" else found[0]


def _toml(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def _changed_toml(text: str, new: Mapping[tuple[Keys, int], Any]) -> str:
    """Python has no TOML writer: a value is replaced in the text, and the result is parsed to check it."""
    wanted = {(leaf.keys, leaf.number): leaf.value for leaf in leaves(text, "toml")}
    for where, value in new.items():
        old = wanted.get(where)
        if old is None or not isinstance(value, str):
            raise ValueError
        for spelled in (json.dumps(old, ensure_ascii=False), json.dumps(old), f"'{old}'"):
            text = text.replace(spelled, json.dumps(value))
        wanted = {place: value if known == old else known for place, known in wanted.items()}
    if {(leaf.keys, leaf.number): leaf.value for leaf in leaves(text, "toml")} != wanted:
        raise ValueError
    return text


def value_at(text: str, format: str, keys: Keys) -> Any:
    """The value at `keys`: of any type in a JSON file, a string in other formats. None when there is nothing."""
    try:
        if format != "json":
            return next((leaf.value for leaf in leaves(text, format) if leaf.keys == keys), None)
        place = _json(text)
        for key in keys:
            place = place.get(key) if isinstance(place, dict) else None
    except (ValueError, RecursionError, UnreadableCredentials):
        return None
    return place
