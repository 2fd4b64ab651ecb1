"""The JSON Schema that ships with the package."""

from __future__ import annotations

import json
from pathlib import Path

from sandbox.config import schema


def test_the_shipped_schema_is_that_of_the_model() -> None:
    assert Path(schema.FILE).read_text(encoding="utf-8") == schema.text(), "run: python -m sandbox.config.schema"


def test_every_field_is_documented() -> None:
    def check(found: dict[str, object], path: str) -> None:
        assert found.get("description"), path
        properties = found.get("properties", {})
        assert isinstance(properties, dict)
        for name, inner in properties.items():
            check(inner, f"{path}.{name}")

    check(json.loads(schema.text()), "config")


def test_it_says_what_may_be_written() -> None:
    whole = json.loads(schema.text())
    assert whole["properties"]["mode"]["enum"] == ["off", "light", "standard", "max"]
    assert whole["properties"]["limits"]["properties"]["memory"]["type"] == ["string", "integer", "null"]
    assert whole["properties"]["network"]["properties"]["secrets"]["additionalProperties"]["properties"]["in"]
    assert whole["additionalProperties"] is False
