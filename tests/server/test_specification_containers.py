"""The specification's paths with container engines and with a virtual machine: the same sandbox, with other walls."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.engines.container_engines import Docker
from tests.server import from_inside
from tests.server.serving import Served
from tests.server.specification import Specification


@pytest.mark.containers
@pytest.mark.root
class TestDocker(Specification):
    engine = "docker"

    @pytest.fixture(scope="class")
    @classmethod
    def home_environment(cls, docker_daemon: Docker) -> dict[str, str]:
        return {"DOCKER_HOST": docker_daemon.host}


@pytest.mark.containers
class TestPodman(Specification):
    engine = "podman"

    @pytest.fixture(scope="class")
    @classmethod
    def home_environment(cls, podman_places: dict[str, str]) -> dict[str, str]:
        return podman_places


@pytest.mark.vm
class TestQemu(Specification):
    engine = "qemu"

    @pytest.fixture(scope="class")
    @classmethod
    def home_environment(cls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
        cache = os.environ.get("SANDBOX_CACHE_DIR") or str(tmp_path_factory.getbasetemp() / "cache")
        return {"SANDBOX_CACHE_DIR": cache}


@pytest.fixture
def contained(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("h"), env={"DOCKER_HOST": docker.host})
    yield server
    server.end()


@pytest.mark.containers
@pytest.mark.root
def test_the_kill_switch_ends_a_sandbox_in_a_container(contained: Served) -> None:
    assert contained.http.put("/v1/managers/boxed", json={"engineType": "docker"}).status_code == 200
    assert contained.http.post("/v1/managers/boxed/start").json()["state"] == "ready"
    assert contained.http.post("/api/sandbox/kill", json={}).json()["pulled"] is True
    assert contained.http.post("/v1/managers/boxed/start").status_code == 409


@pytest.mark.containers
@pytest.mark.root
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


@pytest.mark.containers
@pytest.mark.root
def test_a_tenant_in_a_container_never_reaches_the_server(contained: Served) -> None:
    from_inside.refused(contained, contained.create(engine="docker", network={"preset": "open"}))
