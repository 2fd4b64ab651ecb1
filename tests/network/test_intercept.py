"""Secrets, hooks, scripts and rules in a real sandbox: what tenant, origin, events and disk get to see."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.network.http.message import Request
from sandbox.network.intercept.hooks import Hooks
from tests.network.furnished import Furnished

pytestmark = pytest.mark.walls

Make = Callable[..., Furnished]
VALUE = "sk-the-real-value-0123456789"


def key(**more: Any) -> dict[str, Any]:
    return {"KEY": {"value": VALUE, "hosts": ["api.test:*"], **more}}


def bearer(place: Furnished) -> list[str]:
    return ["-H", f"Authorization: Bearer {place.placeholders['KEY']}"]


def test_a_tenant_uses_a_key_it_never_sees(furnished: Make) -> None:
    place = furnished({"secrets": key()})
    done = place.run("curl", "-sS", *bearer(place), place.url())
    seen = place.origins["api.test"].seen[0]
    assert dict(seen["headers"])["authorization"] == f"Bearer {VALUE}"
    assert done.exit_code == 0
    assert VALUE not in done.stdout
    assert place.placeholders["KEY"] in done.stdout
    event = place.heard.wait(lambda one: one["method"] == "GET")
    assert event["url"] == place.url()
    assert (event["status_code"], event["blocked"], event["response_bytes"]) == (200, False, len(done.stdout))


def test_a_key_on_its_way_to_another_host_is_stopped_and_the_tenant_learns_why(furnished: Make) -> None:
    place = furnished({"secrets": key()})
    done = place.run("curl", "-sS", "-i", *bearer(place), place.url("other.test"))
    assert "403" in done.stdout.splitlines()[0]
    assert "x-proxy-error: blocked-by-allowlist" in done.stdout.lower()
    assert "the secret KEY must not be sent to other.test" in done.stdout
    assert place.origins["other.test"].seen == []
    event = place.heard.blocked("other.test")
    assert event["status_code"] == 403
    assert any("KEY" in str(one) for one in place.heard.records)


def test_curl_cannot_get_it_past_in_a_compressed_upload(furnished: Make, tmp_path: Path) -> None:
    place = furnished({"secrets": key()})
    packed = tmp_path / "project" / "upload.gz"
    packed.write_bytes(gzip.compress(b"x" * 5000 + place.placeholders["KEY"].encode()))
    sent = ["-H", "Content-Encoding: gzip", "--data-binary", "@upload.gz"]
    done = place.run("curl", "-sS", *sent, place.url("other.test"))
    assert "must not be sent" in done.stdout
    assert place.origins["other.test"].bytes_received < 200  # the handshake's own frames


def test_a_raw_socket_that_ignores_every_variable_is_inspected(furnished: Make) -> None:
    place = furnished({"secrets": key(), "http": {"deny": ["GET api.test/secret/**"]}})
    code = f"""
import socket, ssl
raw = socket.create_connection(("api.test", {place.origins["api.test"].port}))
tls = ssl.create_default_context().wrap_socket(raw, server_hostname="api.test")
tls.sendall(b"GET /secret/x HTTP/1.1\\r\\nHost: api.test\\r\\nConnection: close\\r\\n\\r\\n")
print(tls.recv(12).decode())
"""
    assert place.run("/usr/bin/python3", "-c", code).stdout == "HTTP/1.1 403\n"
    assert place.origins["api.test"].seen == []


def test_a_handshake_for_another_name_than_was_resolved_is_refused(furnished: Make) -> None:
    place = furnished()
    code = f"""
import socket, ssl
raw = socket.create_connection(("api.test", {place.origins["api.test"].port}))
tls = ssl.create_default_context().wrap_socket(raw, server_hostname="other.test")
tls.sendall(b"GET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n")
print(tls.recv(65536).decode())
"""
    answer = place.run("/usr/bin/python3", "-c", code).stdout
    assert answer.startswith("HTTP/1.1 403") and "its ClientHello names other.test" in answer
    assert place.heard.blocked("api.test")["rule"] == "tls"
    done = place.run("curl", "-sS", "--http1.1", "-H", "Host: other.test", place.url())
    assert "the request is for 'other.test'" in done.stdout
    assert place.origins["api.test"].seen == []


def test_quic_is_not_available(furnished: Make) -> None:
    place = furnished()
    code = f"""
import socket
try:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(1)
    sock.connect(("api.test", {place.origins["api.test"].port}))
    sock.send(b"x" * 1200)
    sock.recv(10)
except OSError as problem:
    print("nothing")
"""
    assert place.run("/usr/bin/python3", "-c", code).stdout == "nothing\n"


def test_hooks_and_a_script_see_what_the_tenant_asks(furnished: Make) -> None:
    asked: list[str] = []

    def on_request(req: Request) -> Request:
        asked.append(f"{req.method} {req.path}")
        req.headers["X-Hook"] = "was here"
        return req

    script = 'def on_request(req):\n  req.headers["X-Script"] = req.headers["X-Hook"] + " too"\n  return req'
    place = furnished({"policy_script": script}, hooks=Hooks(on_request=on_request))
    place.run("curl", "-sS", place.url(path="/one"))
    headers = dict(place.origins["api.test"].seen[0]["headers"])
    assert (headers["x-hook"], headers["x-script"]) == ("was here", "was here too")
    assert asked == ["GET /one"]


def test_a_script_decides_about_hosts(furnished: Make) -> None:
    place = furnished({"policy_script": 'def is_host_allowed(host): return host == "api.test"'})
    assert place.run("curl", "-sS", place.url()).exit_code == 0
    assert "does not allow" in place.run("curl", "-sS", place.url("other.test")).stdout
    assert "policy_script" in str(place.heard.blocked("other.test"))


def test_keys_are_rotated_and_revoked_while_the_tenant_lives(furnished: Make) -> None:
    place = furnished({"secrets": key()})
    place.sandbox.update_network({"secrets": key(value="sk-rotated-987654321")})
    place.run("curl", "-sS", *bearer(place), place.url())
    assert dict(place.origins["api.test"].seen[0]["headers"])["authorization"] == "Bearer sk-rotated-987654321"
    place.sandbox.update_network({"secrets": {"KEY": None}})
    assert "has been revoked" in place.run("curl", "-sS", *bearer(place), place.url()).stdout


def test_revoking_the_last_secret_unblocks_no_placeholder_and_shows_no_value(furnished: Make) -> None:
    place = furnished({"secrets": key(), "intercept": False})
    place.run("curl", "-sS", *bearer(place), place.url())
    place.sandbox.update_network({"secrets": {"KEY": None}})
    place.origins["api.test"].answer = lambda *_: (200, [], f"it was {VALUE}".encode())
    for name in ("api.test", "other.test"):
        done = place.run("curl", "-sS", *bearer(place), place.url(name))
        assert "the secret KEY has been revoked" in done.stdout
    assert len(place.origins["api.test"].seen) == 1
    assert place.origins["other.test"].seen == []
    assert place.run("curl", "-sS", place.url()).stdout == f"it was {place.placeholders['KEY']}"


def test_a_value_is_nowhere_but_in_memory_and_on_the_wire(furnished: Make, tmp_path: Path) -> None:
    place = furnished({"secrets": key(**{"in": ["header", "query", "body"]})})
    holder = place.placeholders["KEY"]
    for arguments in (
        bearer(place),
        ["-d", holder],
        ["-u", f"me:{holder}"],
        ["-H", "Content-Encoding: gzip", "-d", "garbage"],
    ):
        place.run("curl", "-sS", *arguments, place.url(path=f"/?key={holder}"))
        place.run("curl", "-sS", *arguments, place.url("other.test", path=f"/?key={holder}"))
    told = repr(place.heard.events) + repr(place.heard.records)
    assert VALUE not in told
    assert VALUE not in repr(place.watch.network) + repr(place.watch.network.plain())
    # Everything that can be read inside: processes, environment, files.
    inside = place.run(
        "/bin/sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline /etc/* 2>/dev/null; grep -rs sk- /tmp /run"
    )
    assert VALUE not in inside.stdout
    # And outside: arguments and environments of every process, and what was written to disk meanwhile.
    mine = {str(os.getpid())}
    for one in Path("/proc").iterdir():
        if one.name.isdigit() and one.name not in mine:
            for name in ("cmdline", "environ"):
                try:
                    assert VALUE.encode() not in (one / name).read_bytes()
                except OSError:
                    continue
    found = subprocess.run(["grep", "-rls", "--exclude-dir=tests", VALUE, tmp_path], capture_output=True, check=False)
    assert found.stdout == b""


def test_a_websocket_works_from_inside(furnished: Make) -> None:
    pytest.importorskip("wsproto")
    from tests.network.test_websocket import echo

    place = furnished({"secrets": key()}, protocols=["http/1.1"])
    place.origins["api.test"].raw = echo
    code = f"""
import socket, ssl, sys
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request, TextMessage
raw = socket.create_connection(("api.test", {place.origins["api.test"].port}))
tls = ssl.create_default_context().wrap_socket(raw, server_hostname="api.test")
ws = WSConnection(ConnectionType.CLIENT)
tls.sendall(ws.send(Request(host="api.test", target="/")))
while True:
    ws.receive_data(tls.recv(4096))
    for event in ws.events():
        if isinstance(event, AcceptConnection):
            tls.sendall(ws.send(TextMessage("hello")))
        elif isinstance(event, TextMessage):
            print(event.data)
            sys.exit()
"""
    done = place.run(sys.executable, "-c", code)
    assert done.stdout == "hello\n", done.stderr


def test_many_at_once_and_the_gate_keeps_up(furnished: Make) -> None:
    place = furnished({"secrets": key()})
    urls = " ".join(f"'{place.url(path=f'/{number}')}'" for number in range(200))
    done = place.run("/bin/sh", "-c", f"curl -sS --parallel --parallel-max 50 -o /dev/null {urls}")
    assert done.exit_code == 0, done.stderr
    assert sorted(int(one["target"][1:]) for one in place.origins["api.test"].seen) == list(range(200))


def test_a_sandbox_with_a_secret_starts_without_the_machinery_of_connections(tmp_path: Path) -> None:
    code = """
import sys
from sandbox import Sandbox
secret = {"value": "a-value-of-some-length", "hosts": ["a.test"]}
with Sandbox({"network": {"allowed_hosts": ["a.test"], "secrets": {"KEY": secret}}}) as sandbox:
    sandbox.exec(["true"])
    print(sorted({"asyncio", "ssl", "h11", "h2", "wsproto", "starlark"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_what_an_origin_says_is_passed_as_it_is(furnished: Make) -> None:
    place = furnished()
    place.origins["api.test"].answer = lambda *_: (200, [("Content-Type", "x/y")], json.dumps({"ü": 1}).encode())
    assert place.run("curl", "-sS", place.url()).stdout == json.dumps({"ü": 1})
