"""The JSON Schema of the config file, made from the model, so that editors complete and check it.

`python -m sandbox.config.schema` writes `schema.json` beside this file; a test keeps the two in step.
"""

from __future__ import annotations

import os
import types
from typing import Any

from sandbox.config.model import Config
from sandbox.config.section import Field, Section

FILE = os.path.join(os.path.dirname(__file__), "schema.json")
_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean"}
# What a user may write for a number.
_SPELLINGS: dict[object, list[str]] = {
    "units.size": ["string", "integer"],
    "units.memory": ["string", "integer"],
    "units.seconds": ["string", "number"],
    "units.cpus": ["number", "string"],
    "units.wei": ["string", "integer"],
}


def schema() -> dict[str, Any]:
    """The schema of a whole config file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sandbox configuration",
        **_section(Config),
    }


def _section(section: type[Section]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": section.__doc__,
        "additionalProperties": False,
        "properties": {key: _field(one) for key, one in section.fields.items()},
    }


def _field(one: Field) -> dict[str, Any]:
    kind = one.type
    optional = isinstance(kind, types.UnionType)
    found = _kind(next(part for part in kind.__args__ if part is not type(None)) if optional else kind)
    if one.parse in _SPELLINGS:
        found = {"type": list(_SPELLINGS[one.parse])}
    if optional:
        found["type"] = [*([found["type"]] if isinstance(found["type"], str) else found["type"]), "null"]
    if one.choices:
        found["enum"] = [*one.choices, *([None] if optional else [])]
    described = {"description": one.doc, **{key: value for key, value in found.items() if key != "description"}}
    if not isinstance(one.default, type):
        described["default"] = one.default
    if one.example is not None:
        described["examples"] = [one.example]
    return described


def _kind(kind: Any) -> dict[str, Any]:
    if isinstance(kind, types.GenericAlias):
        if kind.__origin__ is list:
            return {"type": "array", "items": _kind(kind.__args__[0])}
        return {"type": "object", "additionalProperties": _kind(kind.__args__[1])}
    if isinstance(kind, type) and issubclass(kind, Section):
        return _section(kind)
    return {} if kind is object else {"type": _NAMES[kind]}


def text() -> str:
    """The schema as the file holds it."""
    import json

    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    with open(FILE, "w", encoding="utf-8") as file:
        file.write(text())
