"""How a server begins and ends, and what is left when it is killed."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandbox import Sandbox
from sandbox.audit import reading
from sandbox.registry.registry import entries
from sandbox.registry.remove import prune
from tests.network.lab import Pki
from tests.sandboxes import Command, cli, home
from tests.server import from_inside
from tests.server.serving import Served

__all__ = ["cli", "home"]


def test_sigterm_lets_a_request_finish_ends_streams_and_leaves_nothing(tmp_path: Path) -> None:
    server = Served(tmp_path / "home", cwd=tmp_path)
    box = server.create()
    with server.client(server.token) as other, other.stream("GET", "/v1/audit/stream") as endless:
        lines = endless.iter_lines()
        next(lines)
        with server.http.stream(
            "POST", f"/v1/sandboxes/{box}/exec", json={"command": "echo begun; sleep 1; echo done"},
            headers={"Accept": "text/event-stream"},
        ) as answer:  # fmt: skip
            pieces = answer.iter_lines()
            while "begun" not in next(pieces):
                pass
            server.process.send_signal(signal.SIGTERM)
            assert any("done" in line for line in pieces)
        list(lines)  # it ends
    assert server.end() == 0
    assert not any(one.running for one in entries(str(tmp_path / "home")))


def test_a_server_that_is_killed_loses_nothing_on_the_record_and_leaves_what_prune_knows(tmp_path: Path) -> None:
    place = tmp_path / "home"
    server = Served(place, cwd=tmp_path)
    box = server.create()
    pid = int(server.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "echo $$"}).json()["stdout"])
    assert pid > 0
    server.end(signal.SIGKILL)
    (left,) = entries(str(place))
    assert (left.id, left.status) == (box, "crashed")
    assert reading.verify(str(place / "audit"))
    assert any(one.get("operation") == "exec" for one in reading.entries(str(place / "audit")))
    again = Served(place, cwd=tmp_path)
    try:
        (known,) = again.http.get("/v1/sandboxes").json()["sandboxes"]
        assert (known["id"], known["status"]) == (box, "crashed")
        feed = again.http.get("/api/audit/feed").json()
        assert feed["replayed"] is True and any(one.get("sandbox") == box for one in feed["entries"])
        assert prune(str(place))[0] == [box]
    finally:
        again.end()


def test_a_sandbox_of_another_process_is_found_used_and_outlives_the_server(cli: Command, home: Path) -> None:
    detached = cli("run", "--detach", "--", "sleep", "1000").stdout.strip()
    for _ in range(2):  # and again by the next server
        server = Served(home, cwd=home)
        try:
            (one,) = server.http.get("/v1/sandboxes?status=running").json()["sandboxes"]
            assert (one["id"], one["owner"], one["command"]) == (detached, "process", ["sleep", "1000"])
            said = server.http.post(f"/v1/sandboxes/{detached}/exec", json={"command": "echo in"}).json()
            assert said["stdout"] == "in\n"
            path = f"/v1/sandboxes/{detached}/files/content?path=/tmp/f"
            assert server.http.put(path, content=b"abc").status_code == 200
            assert server.http.get(path, headers={"Range": "bytes=1-"}).content == b"bc"
            assert server.http.get(f"/v1/sandboxes/{detached}/network").status_code == 200
        finally:
            server.end()
    server = Served(home, cwd=home)
    try:
        assert server.http.delete(f"/v1/sandboxes/{detached}").status_code == 200
    finally:
        server.end()


# -- where it listens


def test_a_unix_socket_is_the_users_alone_and_still_needs_a_token(tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = Served(tmp_path / "home", "--unix", str(path), cwd=tmp_path)
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://any") as client:
            assert client.get("/v1/sandboxes").status_code == 401
            headers = {"Authorization": f"Bearer {server.token}"}
            assert client.get("/v1/sandboxes", headers=headers).status_code == 200
    finally:
        server.end()
    assert not path.exists()


def test_tls_with_given_files(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    pki.server_context(["localhost"], [])
    both, authority = str(tmp_path / "localhost.pem"), pki.file
    server = Served(tmp_path / "home", "--port", "0", "--cert", both, "--key", both, cwd=tmp_path)
    try:
        port = server.address.rpartition(":")[2]
        context = ssl.create_default_context(cafile=authority)
        with httpx.Client(verify=context, base_url=f"https://localhost:{port}", trust_env=False) as client:
            assert client.get("/v1/health").status_code == 200
        with Sandbox.connect(f"https://localhost:{port}", server.token, certificates=authority) as box:
            assert box.exec("echo over TLS").stdout == "over TLS\n"
    finally:
        server.end()


def test_an_address_that_others_can_reach_needs_tls_or_a_proxy(cli: Command) -> None:
    refused = cli("serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 125
    assert "--cert" in refused.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--port", "99999"), "--port must be a number"), (("--port", "-1"), "--port must be a number"),
        (("--rate", "0"), "--rate must be greater"), (("--rate", "nan"), "--rate must be greater"),
        (("--trust-proxy", "*"), "--trust-proxy must be"),
        (("--trust-proxy", "proxy.example"), "--trust-proxy must be"),
        (("--cert", "/no/such", "--key", "/no/such"), "cannot read /no/such"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_work_is_said_before_anything_is_served(
    cli: Command, words: tuple[str, ...], says: str
) -> None:
    done = cli("serve", *words)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("sandbox: ") and says in done.stderr


def test_a_port_in_use_is_said(cli: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = cli("serve", "--port", str(taken.getsockname()[1]))
    assert refused.returncode == 125 and "cannot listen" in refused.stderr


def test_new_token_prints_one_that_works_and_ends_with_the_server(tmp_path: Path) -> None:
    environment = {**os.environ, "SANDBOX_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "sandbox.cli.main", "serve", "--port", "0", "--new-token"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        token = process.stdout.readline().split()[-1]
        assert process.stdout.readline().strip() == f"{address}/#token={token}"
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{address}/v1/me", headers=headers, trust_env=False).status_code == 200
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    assert not (tmp_path / "home/server/tokens.json").exists()  # it was in memory alone


def test_tokens_are_made_listed_and_revoked_by_command(cli: Command) -> None:
    token = cli("serve", "token", "new", "--scope", "read,exec", "--label", "mine", "--expires", "1h").stdout.strip()
    assert token.startswith("sbx_")
    listed = cli("serve", "token", "list").stdout
    assert "mine" in listed and token not in listed
    assert cli("serve", "token", "revoke", "mine").returncode == 0
    assert cli("serve", "token", "list").stdout == ""
    assert "unknown scope" in cli("serve", "token", "new", "--scope", "everything").stderr
    assert "needs a scope" in cli("serve", "token", "new").stderr


# -- from inside


@pytest.mark.walls
def test_a_tenant_never_reaches_the_server(tmp_path: Path) -> None:
    server = Served(tmp_path / "home", cwd=tmp_path)
    try:
        port = server.address.rpartition(":")[2]
        configs: list[dict[str, Any]] = [{}, {"network": {"preset": "open"}}]
        for config in configs:
            from_inside.refused(server, server.create(**config))
        # Neither by the port that the owner opened for something else, nor by naming the server's own.
        refused = server.http.post("/v1/sandboxes", json={"config": {"network": {"localhost_ports": [int(port)]}}})
        assert refused.status_code == 400
        assert refused.json()["error"]["field"] == "network.localhost_ports"
    finally:
        server.end()
