"""The specification's paths with container engines: the same managed sandbox, with other walls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engines.container_engines import Docker
from tests.server.serving import Served

pytestmark = [pytest.mark.containers, pytest.mark.root]


@pytest.fixture
def contained(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("h"), env={"DOCKER_HOST": docker.host})
    yield server
    server.end()


def test_a_managed_sandbox_in_a_container_starts_runs_recovers_and_stops(contained: Served) -> None:
    assert contained.http.get("/api/sandbox/platform").json()["dockerAvailable"] is True
    assert contained.http.put("/v1/managers/boxed", json={"engineType": "docker"}).status_code == 200
    told = contained.http.post("/v1/managers/boxed/start").json()
    assert (told["state"], told["engine"]) == ("ready", "docker"), told
    ran = contained.http.post("/v1/managers/boxed/exec", json={"command": "echo in a container; exit 4"}).json()
    assert (ran["exitCode"], ran["stdout"], ran["executedInSandbox"]) == (4, "in a container\n", True)
    assert contained.http.post("/v1/managers/boxed/stop").json()["state"] == "stopped"
    assert contained.http.post("/v1/managers/boxed/recover").json()["state"] == "ready"
    assert contained.http.post("/v1/managers/boxed/exec", json={"command": "true"}).json()["exitCode"] == 0
    assert contained.http.post("/api/sandbox/kill", json={}).json()["pulled"] is True
    refused = contained.http.post("/v1/managers/boxed/start")
    assert refused.status_code == 409


def test_v1_sandboxes_in_a_container_streams_files_and_ports(contained: Served) -> None:
    box = contained.create(engine="docker")
    asked = {"command": "echo streamed"}
    headers = {"Accept": "text/event-stream"}
    with contained.http.stream("POST", f"/v1/sandboxes/{box}/exec", json=asked, headers=headers) as answer:
        assert "streamed" in "".join(answer.iter_text())
    path = f"/v1/sandboxes/{box}/files/content?path=/tmp/f"
    assert contained.http.put(path, content=b"abc").status_code == 200
    assert contained.http.get(path, headers={"Range": "bytes=1-"}).content == b"bc"
    assert contained.http.delete(f"/v1/sandboxes/{box}").status_code == 200
