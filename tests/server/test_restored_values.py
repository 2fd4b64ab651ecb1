"""A checkpoint holds no values of the owner's configuration; a server that starts from it has them itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.serving import Served

HOST = "api.example.com"
OWNERS = {
    "environment": {"set": {"OWNERS": "of the owner"}},
    "network": {"allowed_hosts": [HOST], "secrets": {"KEY": {"value": "sk-of-the-owner", "hosts": [HOST]}}},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp("h")
    (home / "config.yaml").write_text(json.dumps(OWNERS), encoding="utf-8")
    server = Served(home)
    yield server
    server.end()


def e2b(served: Served, method: str, path: str, **body: object) -> httpx.Response:
    return served.http.request(method, path, headers={"X-API-Key": served.token}, json=body)


def shown(served: Served, id: str) -> str:
    return str(served.http.post(f"/v1/sandboxes/{id}/exec", json={"command": "echo $OWNERS"}).json()["stdout"])


def test_an_e2b_snapshot_starts_with_the_values_of_the_owners_configuration(served: Served) -> None:
    made = e2b(served, "POST", "/v2/sandboxes", templateID="base").json()["sandboxID"]
    snapshot = e2b(served, "POST", f"/sandboxes/{made}/snapshots").json()["snapshotID"]
    restored = e2b(served, "POST", "/v2/sandboxes", templateID=snapshot)
    assert restored.status_code == 201, restored.text
    assert shown(served, restored.json()["sandboxID"]) == "of the owner\n"


def test_a_checkpoint_starts_with_the_values_of_the_owners_configuration(served: Served) -> None:
    name = served.http.post(f"/v1/sandboxes/{served.create()}/checkpoint", json={"name": "plain"}).json()["name"]
    restored = served.http.post(f"/v1/checkpoints/{name}/restore", json={})
    assert restored.status_code == 201, restored.text
    assert shown(served, restored.json()["id"]) == "of the owner\n"


def test_a_value_that_the_owners_configuration_lacks_must_be_given_again(served: Served) -> None:
    box = served.create(environment={"set": {"MORE": "of the client"}})
    served.http.post(f"/v1/sandboxes/{box}/checkpoint", json={"name": "more"})
    refused = served.http.post("/v1/checkpoints/more/restore", json={})
    assert refused.status_code == 400
    assert "environment.set.MORE: a checkpoint does not hold this value" in refused.text
    given = {"config": {"environment": {"set": {"MORE": "again"}}}}
    assert served.http.post("/v1/checkpoints/more/restore", json=given).status_code == 201


def test_the_owners_credential_does_not_go_to_a_host_that_a_checkpoint_names_for_it(served: Served) -> None:
    elsewhere = {"value": "sk-of-the-client", "hosts": ["elsewhere.example.com"]}
    box = served.create(network={"allowed_hosts": ["elsewhere.example.com"], "secrets": {"KEY": elsewhere}})
    served.http.post(f"/v1/sandboxes/{box}/checkpoint", json={"name": "elsewhere"})
    refused = served.http.post("/v1/checkpoints/elsewhere/restore", json={})
    assert refused.status_code == 400
    assert "network.secrets.KEY.value: a checkpoint does not hold this value" in refused.text
