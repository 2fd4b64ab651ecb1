"""Changes one setting in a YAML file and keeps everything else in it, comments included.

The text is cut at the positions that the parser reports, then parsed again. If the result is not the old data with
this one change, nothing is written.
"""

from __future__ import annotations

import json
import os
from typing import Any

from sandbox.config import files
from sandbox.config.atomic_write import write_whole
from sandbox.errors import ConfigError


def write_file(file: str, text: str) -> None:
    """Writes the file, making its directory (0700) when it does not exist."""
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    write_whole(file, text)


def set_value(text: str, path: list[str], value: object, file: str = "config.yaml") -> str:
    """The text with `path` set to `value`. Raises ConfigError when the text is not a mapping of settings."""
    before = files.parse(file, text).data if text.strip() else {}
    changed = _edited(text, path, value, file)
    if files.parse(file, changed).data != _with(before, path, value):
        raise ConfigError("cannot be edited automatically; please edit it by hand", file=file)
    return changed


def unset_value(text: str, path: list[str], file: str = "config.yaml") -> str | None:
    """The text without `path`, and without sections that become empty; None if `path` is not set.

    Raises ConfigError when the text is not a mapping of settings.
    """
    before = files.parse(file, text).data if text.strip() else {}
    expected = _without(before, path)
    if expected == before:
        return None
    changed = _cut(text, path, file)
    if files.parse(file, changed).data != expected:
        raise ConfigError("cannot be edited automatically; please edit it by hand", file=file)
    return changed


def _without(data: Any, path: list[str]) -> Any:
    if not isinstance(data, dict) or path[0] not in data:
        return data
    inner = _without(data[path[0]], path[1:]) if len(path) > 1 else {}
    rest = {key: value for key, value in data.items() if key != path[0]}
    if len(path) > 1 and (inner or inner == data[path[0]]):
        return {key: inner if key == path[0] else value for key, value in data.items()}
    return rest


def _cut(text: str, path: list[str], file: str) -> str:
    _, node = files.compose(file, text)
    place = _offsets(text)
    around = [node]
    for name in path:
        around.append(next(inner for key, inner in around[-1].value if key.value == name))
    depth = len(path) - 1
    while depth and len(around[depth].value) == 1:
        depth -= 1  # a section that becomes empty is removed
    mapping = around[depth]
    at = next(at for at, (key, _) in enumerate(mapping.value) if key.value == path[depth])
    key, value = mapping.value[at]
    start, end = place(key.start_mark), max(place(_last(value).end_mark), place(key.end_mark))
    if mapping.flow_style:
        if at + 1 < len(mapping.value):
            end = place(mapping.value[at + 1][0].start_mark)
        elif at:
            start = place(_last(mapping.value[at - 1][1]).end_mark)
        return text[:start] + text[end:]
    line = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    return text[:line] + (text[stop + 1 :] if stop != -1 else "")


def _offsets(text: str) -> Any:
    """The position in the text of a parser's mark."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def offset(mark: Any) -> int:
        return min(starts[min(int(mark.line), len(starts) - 1)] + int(mark.column), len(text))

    return offset


def _with(data: Any, path: list[str], value: object) -> dict[str, Any]:
    inner = dict(data) if isinstance(data, dict) else {}
    inner[path[0]] = value if len(path) == 1 else _with(inner.get(path[0]), path[1:], value)
    return inner


def _edited(text: str, path: list[str], value: object, file: str) -> str:
    _, node = files.compose(file, text)
    if node is None:
        return _ended(text) + _block(path, value, 0)
    offset = _offsets(text)
    at = 0
    while True:
        if node.id != "mapping":
            raise ConfigError("is not a mapping", path=".".join(path[:at]), file=file)
        found = next(((key, inner) for key, inner in node.value if key.value == path[at]), None)
        if found is None:
            return _inserted(text, node, path[at:], value, offset)
        key, inner = found
        if at == len(path) - 1 or (inner.id == "scalar" and inner.value in ("", "~", "null")):
            return _replaced(text, key, inner, path[at + 1 :], value, offset)
        node, at = inner, at + 1


def _replaced(text: str, key: Any, node: Any, rest: list[str], value: object, offset: Any) -> str:
    """Replaces the value of `key`. Keeps what is between the two, except white space."""
    start, end = offset(node.start_mark), offset(_last(node).end_mark)
    colon = text.index(":", offset(key.end_mark)) + 1
    if text[colon:start].strip():
        colon = start
    separator = "" if colon == start else " "
    nested = f"\n{_block(rest or [''], value, key.start_mark.column + 2)}".rstrip("\n")
    rendered = nested if rest else separator + _flow(value)
    return text[:colon] + rendered + text[max(end, colon) :]


def _inserted(text: str, node: Any, path: list[str], value: object, offset: Any) -> str:
    """A new key at the end of a mapping."""
    if node.flow_style:
        end = offset(node.end_mark) - 1
        comma = ", " if node.value else ""
        nested: object = value
        for name in reversed(path[1:]):
            nested = {name: nested}
        return f"{text[:end].rstrip()}{comma}{path[0]}: {_flow(nested)}{text[end:]}"
    end = offset(_last(node).end_mark)
    stop = text.find("\n", end)
    stop = len(text) if stop == -1 else stop + 1
    return _ended(text[:stop]) + _block(path, value, node.start_mark.column) + text[stop:]


def _last(node: Any) -> Any:
    """The node with which `node` really ends: a block collection's own mark lies beyond the comments after it."""
    if node.id == "scalar" or node.flow_style or not node.value:
        return node
    return _last(node.value[-1][1] if node.id == "mapping" else node.value[-1])


def _block(path: list[str], value: object, indent: int) -> str:
    out = ""
    for depth, name in enumerate(path):
        out += " " * (indent + 2 * depth) + f"{name}:"
        out += f" {_flow(value)}\n" if depth == len(path) - 1 else "\n"
    return out


def _flow(value: object) -> str:
    """A value on one line. JSON is YAML; plain words need no quotes."""
    if isinstance(value, list):
        return f"[{', '.join(_flow(item) for item in value)}]"
    special = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")
    if isinstance(value, str) and value.isascii() and value.isalpha() and value.lower() not in special:
        return value
    return json.dumps(value, ensure_ascii=False)


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"
