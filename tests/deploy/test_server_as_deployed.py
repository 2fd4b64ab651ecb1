"""The real server with the manifests' own arguments: what they say of it (probes, ports, metrics, names) is true."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deploy.certificates import certificate
from tests.deploy.kustomize import DEPLOY, render
from tests.deploy.test_manifests import kustomization, named
from tests.server.serving import Served

TOKEN, READER = "sbx_" + "owner" * 8, "sbx_" + "metrics" * 5
FIELDS = {"metadata.name": "sandbox-server-0", "metadata.namespace": "sandbox", "status.podIP": "10.1.2.3"}

pytestmark = pytest.mark.walls


@pytest.fixture(scope="module")
def container() -> dict[str, Any]:
    server = named(render(DEPLOY / "kubernetes" / "base"), "StatefulSet", "sandbox-server")
    (only,) = server["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def environment(container: dict[str, Any]) -> dict[str, str]:
    """As the kubelet would fill it in."""
    return {one["name"]: FIELDS[one["valueFrom"]["fieldRef"]["fieldPath"]] for one in container["env"]}


def arguments(container: dict[str, Any], etc: Path) -> list[str]:
    """The container's own, at a free port of the loopback, with what it mounts in `etc`."""
    words = []
    for word in container["args"]:
        for name, value in environment(container).items():
            word = word.replace(f"$({name})", value)
        assert "$(" not in word, word
        words.append(word.replace("/etc/sandbox", str(etc)))
    assert words[0] == "serve" and {"--host=0.0.0.0", "--port=7777"} <= set(words)
    return [*(one for one in words[1:] if not one.startswith(("--host=", "--port="))), "--port=0"]


@pytest.fixture(scope="module")
def served(container: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    etc = tmp_path_factory.mktemp("etc")
    mounted = {one["mountPath"].removeprefix("/etc/sandbox/"): one["name"] for one in container["volumeMounts"]}
    assert {mounted[one] for one in ("config", "tokens", "tls")} == {"config", "tokens", "tls"}
    for name in ("config", "tokens", "tls"):
        (etc / name).mkdir()
    config = named(render(DEPLOY / "kubernetes" / "base"), "ConfigMap", "sandbox-config")
    for name, text in config["data"].items():
        (etc / "config" / name).write_text(text)
    (etc / "tokens" / "tokens").write_text(f"{TOKEN} * owner\n{READER} read prometheus\n")
    certificate(etc / "tls", ["localhost", "127.0.0.1", "sandbox"])
    server = _Served(tmp_path_factory.mktemp("home"), *arguments(container, etc), env=environment(container), etc=etc)
    yield server
    server.end()


class _Served(Served):
    """Speaks TLS, with the certificate that it was given."""

    def __init__(self, home: Path, *words: str, env: dict[str, str], etc: Path) -> None:
        self._trust = ssl.create_default_context(cafile=str(etc / "tls" / "tls.crt"))
        super().__init__(home, *words, env=env)

    def client(self, token: str | None, **more: Any) -> httpx.Client:
        return super().client(token, verify=self._trust, **more)


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_the_server_answers_every_probe_without_a_token(served: Served, container: dict[str, Any], probe: str) -> None:
    asked = container[probe]["httpGet"]
    assert asked["scheme"] == "HTTPS" and served.address.startswith("https://")
    assert asked["port"] in {one["name"] for one in container["ports"] if one["containerPort"] == 7777}
    headers = {one["name"]: one["value"] for one in asked["httpHeaders"]}
    with served.client(None) as client:
        assert client.get(asked["path"], headers=headers).status_code == 200


def test_the_names_by_which_clients_reach_it_are_its_own(served: Served) -> None:
    names = ["sandbox", "sandbox.sandbox", "sandbox.sandbox.svc", "sandbox-server-0.sandbox-servers",
             "sandbox-server-0.sandbox-servers.sandbox.svc", "10.1.2.3:7777"]  # fmt: skip
    with served.client(None) as client:
        assert {name: client.get("/v1/health", headers={"Host": name}).status_code for name in names} == dict.fromkeys(
            names, 200
        )
        assert client.get("/v1/health", headers={"Host": "elsewhere.example"}).status_code == 421


def test_the_metrics_that_the_autoscaler_asks_for_are_there_for_its_token(served: Served, tmp_path: Path) -> None:
    objects = render(kustomization(tmp_path / "own", "autoscaling"))
    (endpoint,) = named(objects, "ServiceMonitor", "sandbox-server")["spec"]["endpoints"]
    services = [one for one in objects if one["kind"] == "Service"]
    assert all(endpoint["port"] in {port["name"] for port in one["spec"]["ports"]} for one in services)
    with served.client(READER) as client:
        text = client.get(endpoint["path"]).text
    scaler = named(objects, "HorizontalPodAutoscaler", "sandbox-server")["spec"]
    wanted = {one["pods"]["metric"]["name"]: one["pods"]["target"]["averageValue"] for one in scaler["metrics"]}
    exported = {line.split()[0] for line in text.splitlines() if line and not line.startswith("#")}
    assert set(wanted) <= exported
    (most,) = [float(line.split()[1]) for line in text.splitlines() if line.startswith("sandbox_most ")]
    assert float(wanted["sandbox_own"]) < most == 200
    assert (
        scaler["scaleTargetRef"]["kind"] == "StatefulSet"
        and "replicas" not in named(objects, "StatefulSet", "sandbox-server")["spec"]
    )


def test_a_sandbox_runs_with_the_configuration_of_the_manifests(served: Served) -> None:
    with served.client(TOKEN) as client:
        id = client.post("/v1/sandboxes", json={"config": {}}).json()["id"]
        done = client.post(f"/v1/sandboxes/{id}/exec", json={"command": "ulimit -u; true"}).json()
        assert done["exit_code"] == 0
        limits = client.get(f"/v1/sandboxes/{id}").json()["config"]["limits"]
        assert client.delete(f"/v1/sandboxes/{id}").status_code == 200
    assert (limits["pids"], limits["lifetime"]) == (256, 3600)


def test_a_server_that_must_end_is_not_ready_and_ends_within_the_pods_grace(
    container: dict[str, Any],
) -> None:
    from sandbox.server.run import DRAIN

    server = named(render(DEPLOY / "kubernetes" / "base"), "StatefulSet", "sandbox-server")
    assert server["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 2 * DRAIN
