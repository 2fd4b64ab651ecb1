"""Completes the OpenAPI document: adds what every route has in common, and an example for every schema.

Examples are built from the fields' own examples (`Meta(examples=…)`), their defaults and their types, so a new schema
gets one automatically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from litestar.openapi.plugins import JsonRenderPlugin

from sandbox.server.errors import Failure, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litestar import Request

_BY_TYPE: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}
_DEPTH = 8
PUBLIC = ("/v1/health", "/v1/ready")
FAILURE = Failure(Problem("invalid", "must be one of read, exec", field="scope"))


class Complete(JsonRenderPlugin):
    """Serves the completed document."""

    _made: bytes = b""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """The document as JSON; built once."""
        if not self._made:
            self._made = msgspec.json.encode(completed(openapi_schema))
        return self._made


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """The document, with examples and with the answers that any route can give."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    made, known = msgspec.json.schema_components([Failure], ref_template="#/components/schemas/{name}")
    schemas.update({name: schema for name, schema in known.items() if name not in schemas})
    failure = {"application/json": {"schema": made[0], "example": msgspec.to_builtins(FAILURE)}}
    paths = document["paths"] = {name: one for name, one in document["paths"].items() if not name.startswith("/schema")}
    for name, path in paths.items():
        for operation in path.values():
            if isinstance(operation, dict) and "responses" in operation:
                responses = operation["responses"]
                responses.pop("400", None)
                responses["4XX"] = {"description": "Refused: the body says why", "content": failure}
                responses["5XX"] = {"description": "Not possible here, or not now", "content": failure}
                if name in PUBLIC:
                    operation["security"] = []
    for struct in _strict():
        for name in (struct.__name__, f"{struct.__module__}.{struct.__name__}".replace(".", "_")):
            if name in schemas:
                schemas[name]["additionalProperties"] = False
    for schema in schemas.values():
        if "example" not in schema and "examples" not in schema:
            schema["example"] = example(schema, schemas)
    return document


def _strict() -> Iterator[type[msgspec.Struct]]:
    """The bodies that allow no unknown fields. Litestar does not put that into the document."""
    from sandbox.rpc import messages
    from sandbox.server import shapes
    from sandbox.server.routes import manager, managers

    for module in (shapes, messages, manager, managers):
        for one in vars(module).values():
            if (
                isinstance(one, type)
                and issubclass(one, msgspec.Struct)
                and one.__struct_config__.forbid_unknown_fields
            ):
                yield one


def example(schema: dict[str, Any], schemas: dict[str, Any], depth: int = 0) -> Any:
    """A value that the schema allows."""
    if isinstance(reference := schema.get("$ref"), str):
        schema = schemas.get(reference.rpartition("/")[2], {})
    for key in ("example", "const", "default"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("oneOf", "anyOf", "allOf"):
        if schema.get(key):
            return example(schema[key][0], schemas, depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        fewest = schema.get("minItems", 0 if depth >= _DEPTH else 1)
        return [] if "items" not in schema else [example(schema["items"], schemas, depth + 1)] * fewest
    if kind == "object" or "properties" in schema:
        return {name: example(one, schemas, depth + 1) for name, one in schema.get("properties", {}).items()}
    if kind in ("integer", "number"):
        return max(_BY_TYPE[kind], schema.get("minimum", _BY_TYPE[kind]))
    return _BY_TYPE.get(str(kind), {})
