"""Nothing a tenant does, or leaves undone, takes a connection out of the gate's sight."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from sandbox.config.model import Network
from sandbox.errors import ConfigError
from sandbox.policy.network import NetworkPolicy
from tests.network.furnished import Furnished
from tests.network.room import LOCAL, Listen, Walls, listener, walled

__all__ = ["listener", "walled"]
pytestmark = pytest.mark.walls

SILENT = """
import socket, time, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
time.sleep(1)
s.sendall(b"GET /admin HTTP/1.1\\r\\nHost: " + sys.argv[1].encode() + b"\\r\\n\\r\\n")
print(s.recv(9999))
"""


def said(into: list[bytes], first: bytes = b"") -> Callable[[socket.socket], None]:
    def serve(client: socket.socket) -> None:
        if first:
            client.sendall(first)
        while data := client.recv(65536):
            into.append(data)

    return serve


def answers(client: socket.socket) -> None:
    while client.recv(65536):
        client.sendall(b"HTTP/1.1 204 Done\r\n\r\n")


def test_silence_does_not_switch_inspection_off(walled: Walls, listener: Listen) -> None:
    port = listener(answers).port
    place = walled(names={"api.test": LOCAL}, allowed_hosts=[f"api.test:{port}", *LOCAL], intercept=True)
    done = place.run("/usr/bin/python3", "-c", SILENT, "api.test", str(port))
    assert "204" in done.stdout
    place.heard.wait(lambda one: (one["method"], one["url"]) == ("GET", f"http://api.test:{port}/admin"))


def test_nor_past_a_rule(walled: Walls, listener: Listen) -> None:
    heard: list[bytes] = []
    port = listener(said(heard)).port
    deny = {"deny": ["* api.test/admin"]}
    place = walled(names={"api.test": LOCAL}, allowed_hosts=[f"api.test:{port}", *LOCAL], http=deny, intercept=True)
    done = place.run("/usr/bin/python3", "-c", SILENT, "api.test", str(port))
    assert "403" in done.stdout
    assert heard == []


@pytest.mark.parametrize("banner", [b"", b"SSH-2.0-honest\r\n", b"220 mail\r\n"])
def test_on_sshs_port_only_what_both_ends_call_ssh_is_passed(
    walled: Walls, listener: Listen, monkeypatch: pytest.MonkeyPatch, banner: bytes
) -> None:
    heard: list[bytes] = []
    port = listener(said(heard, banner)).port
    monkeypatch.setattr("sandbox.network.gate.tenant_connection.SSH", port)
    monkeypatch.setattr(
        "sandbox.network.gate.tenant_connection._FIRST_BYTES", 3.0
    )  # so long a server that says nothing is waited for
    place = walled(names={"git.test": LOCAL}, allowed_hosts=[f"git.test:{port}", *LOCAL], intercept=True)
    code = (
        "import socket, sys; s = socket.create_connection(('git.test', int(sys.argv[1]))); "
        "s.sendall(sys.argv[2].encode() + b'\\r\\nmore\\r\\n'); s.shutdown(1); print(s.recv(99))"
    )
    place.run("/usr/bin/python3", "-c", code, str(port), "anything else")
    assert heard == []
    place.run("/usr/bin/python3", "-c", code, str(port), "SSH-2.0-me")
    if banner.startswith(b"SSH-"):
        place.heard.wait(lambda one: one["status_code"] == 200)
        assert b"".join(heard) == b"SSH-2.0-me\r\nmore\r\n"
    else:
        assert heard == []


def test_the_spelling_for_another_protocol_names_one_port_and_only_allows() -> None:
    policy = NetworkPolicy(Network.read({"allowed_hosts": ["tcp:db.test:5432"], "intercept": True}))
    assert policy.passes_raw("db.test", 5432)
    assert policy.connect("db.test", 5432)
    assert not policy.passes_raw("db.test", 5433)
    assert not policy.connect("db.test", 5433)
    for wrong in ({"allowed_hosts": ["tcp:db.test"]}, {"allowed_hosts": ["tcp:db.test:*"]},
                  {"denied_hosts": ["tcp:db.test:1"]}):  # fmt: skip
        with pytest.raises(ConfigError):
            NetworkPolicy(Network.read(wrong))
    ruled = {"allowed_hosts": ["tcp:db.test:5432"], "http": {"deny": ["* db.test/x"]}}
    assert not NetworkPolicy(Network.read(ruled)).passes_raw("db.test", 5432)


TARGETS = ["/public/#/../../admin", "/public/\\..\\admin", "/public%2Fadmin"]


# Asks for a target as no client would write it: over HTTP/1.1, over HTTP/2, and through the explicit proxy.
ASK = """
import socket, ssl, sys
way, host, port, target = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].encode()
name = f"{host}:{port}".encode()
s = socket.create_connection(("198.18.0.3", 3128) if "proxy" in way else (host, port))
if way == "proxy, CONNECT":
    s.sendall(b"CONNECT " + name + b" HTTP/1.1\\r\\nHost: " + name + b"\\r\\n\\r\\n")
    assert s.recv(999).endswith(b"established\\r\\n\\r\\n")
if way == "proxy, absolute":
    target = b"http://" + name + target
else:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2" if way == "HTTP/2" else "http/1.1"])
    s = context.wrap_socket(s, server_hostname=host)
if way == "HTTP/2":
    text = lambda data: bytes((len(data),)) + data
    head = b"\\x82\\x87\\x04" + text(target) + b"\\x01" + text(name)
    s.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
    s.sendall(len(head).to_bytes(3, "big") + bytes((1, 5, 0, 0, 0, 1)) + head)
else:
    s.sendall(b"GET " + target + b" HTTP/1.1\\r\\nHost: " + name + b"\\r\\nConnection: close\\r\\n\\r\\n")
got = b""
while b"sandbox" not in got and b'"method"' not in got and (data := s.recv(65536)):
    got += data
print(got)
"""


@pytest.mark.parametrize("way", ["HTTP/1.1", "HTTP/2", "proxy, CONNECT", "proxy, absolute"])
def test_a_target_that_no_client_sends_reaches_no_server(furnished: Callable[..., Furnished], way: str) -> None:
    place = furnished({"http": {"allow": ["GET api.test/public/**"]}})
    origin = place.origins["api.test"]
    for target in (
        "/public/#/../../admin", "/public/\\..\\admin", "/public/..%2fadmin", "/public/../admin", "/admin",
        "/public/\x01", "/public/a\x7f", "/public/a\tb",
    ):  # fmt: skip
        done = place.run("/usr/bin/python3", "-c", ASK, way, "api.test", str(origin.port), target)
        assert "sandbox" in done.stdout, (target, done)
    assert origin.seen == []
    if way != "proxy, absolute":  # which is plain HTTP, to an origin of TLS
        done = place.run("/usr/bin/python3", "-c", ASK, way, "api.test", str(origin.port), "/public/a")
        assert [one["target"] for one in origin.seen] == ["/public/a"], done


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_judged_is_what_is_sent(target: str) -> None:
    policy = NetworkPolicy(Network.read({"http": {"allow": ["GET api.test/*", "GET api.test/public/"]}}))
    assert not policy.request("GET", "api.test", 443, target)


def test_an_encoded_slash_is_allowed_where_both_readings_are() -> None:
    policy = NetworkPolicy(Network.read({"http": {"allow": ["GET npm.test/**"]}}))
    assert policy.request("GET", "npm.test", 443, "/@scope%2fname")


TRAILERS = """
import socket, ssl, sys
s = socket.create_connection(("api.test", int(sys.argv[1])))
s = ssl.create_default_context().wrap_socket(s, server_hostname="api.test")
s.sendall(b"POST / HTTP/1.1\\r\\nHost: api.test\\r\\nTransfer-Encoding: chunked\\r\\nConnection: close\\r\\n\\r\\n"
          b"1\\r\\nx\\r\\n0\\r\\nHost: 9\\r\\nContent-Length: 9\\r\\nAuthorization: 9\\r\\nX-Own: 9\\r\\n\\r\\n")
while data := s.recv(65536):
    print(data)
"""


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
def test_no_trailer_reaches_a_server(furnished: Callable[..., Furnished], protocol: str) -> None:
    place = furnished(protocols=[protocol])
    origin = place.origins["api.test"]
    done = place.run("/usr/bin/python3", "-c", TRAILERS, str(origin.port))
    assert "200" in done.stdout, done.stderr
    [seen] = origin.seen
    assert (seen["body"], [name for name, value in seen["headers"] if value == "9"]) == (b"x", [])


MALFORMED = """
import socket, ssl, sys
for said in (b"GET /a b c HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n", b"GET / HTTP/1.1\\r\\nHost api.test\\r\\n\\r\\n",
             b"POST / HTTP/1.1\\r\\nHost: api.test\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\nzz\\r\\n"):
    s = socket.create_connection(("api.test", int(sys.argv[1])))
    s = ssl.create_default_context().wrap_socket(s, server_hostname="api.test")
    s.sendall(said)
    print(s.recv(65536)[:12].decode())
"""


def test_a_malformed_request_is_a_400_and_reaches_no_server(furnished: Callable[..., Furnished]) -> None:
    place = furnished(protocols=["http/1.1"])
    origin = place.origins["api.test"]
    done = place.run("/usr/bin/python3", "-c", MALFORMED, str(origin.port))
    assert done.stdout.splitlines() == ["HTTP/1.1 400"] * 3, done.stderr
    assert origin.seen == []


LONG = """
import socket, sys
name = b"api.test:" + sys.argv[2].encode()
proxied = sys.argv[1] == "proxy"
s = socket.create_connection(("198.18.0.3", 3128) if proxied else ("api.test", int(sys.argv[2])))
target = (b"http://" + name if proxied else b"") + b"/" + b"a" * 60_000
s.sendall(b"GET " + target + b" HTTP/1.1\\r\\nHost: " + name + b"\\r\\nX: " + b"x" * 50_000 + b"\\r\\n\\r\\n")
print(s.recv(9999))
"""


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("way", ["straight", "proxy"])
def test_a_head_of_a_hundred_kilobytes_is_passed_on(walled: Walls, listener: Listen, way: str, intercept: bool) -> None:
    heard: list[bytes] = []

    def serve(client: socket.socket) -> None:
        while not b"".join(heard[-2:]).endswith(b"\r\n\r\n"):
            heard.append(client.recv(65536))
        client.sendall(b"HTTP/1.1 204 Done\r\n\r\n")

    port = listener(serve).port
    place = walled(names={"api.test": LOCAL}, allowed_hosts=[f"api.test:{port}", *LOCAL], intercept=intercept)
    done = place.run("/usr/bin/python3", "-c", LONG, way, str(port))
    assert "204" in done.stdout, done
    got = b"".join(heard)
    assert got.startswith(b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\n") and b"x" * 50_000 in got
