"""The OpenAPI document, and schemathesis against it: no request, however odd, breaks the server or its word."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jsonschema_rs
import pytest

from tests.server.serving import Served

# What ends or changes the host, or never ends by itself, is left out; the other tests have it.
EXCLUDED = "/(kill|docker/start|stream|platform|release|port)"


@pytest.fixture(scope="module")
def document(served: Served) -> dict[str, Any]:
    with served.client(None) as anybody:
        return dict(anybody.get("/schema").json())


def test_every_schema_has_an_example_that_it_allows(document: dict[str, Any]) -> None:
    registry = {"components": document["components"]}
    schemas = document["components"]["schemas"]
    assert len(schemas) > 30
    for name, schema in schemas.items():
        shown = schema["example"] if "example" in schema else schema["examples"][0]
        jsonschema_rs.Draft202012Validator({**registry, **schema}).validate(shown)
        assert shown not in ({}, None) or not schema.get("properties"), name


def test_every_path_says_how_it_refuses_and_what_it_needs(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, one in operations.items():
            if method in ("get", "post", "put", "patch", "delete"):
                assert {"4XX", "5XX"} <= set(one["responses"]), path
                public = path in ("/v1/health", "/v1/ready")
                assert one.get("security", document["security"]) == ([] if public else [{"token": []}])


def test_no_request_makes_the_server_fail(served: Served, box: str) -> None:
    command = [
        os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", f"{served.address}/schema/openapi.json",
        "--header", f"Authorization: Bearer {served.new_token('*', sandboxes=[box])}",
        "--exclude-checks", "positive_data_acceptance",  # a path that is not there is refused, whatever a schema says
        "--phases", "examples,coverage,fuzzing", "--max-examples", "4", "--exclude-path-regex", EXCLUDED,
        "--suppress-health-check", "all", "--generation-deterministic", "--workers", "2", "--request-timeout", "30",
    ]  # fmt: skip
    (served.home / "schemathesis.toml").write_text(f'[parameters]\n"path.id" = "{box}"\n')  # one that is there
    done = subprocess.run(command, capture_output=True, text=True, env=served.environment, check=False, cwd=served.home)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
