"""`network.gate: client`: the gate of a sandbox in another process, or on another machine, is the client's own."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cbor2
import pytest

from sandbox import home_gate
from sandbox.client import Client
from sandbox.errors import ConfigError, SandboxError
from tests.network.lab import Pki
from tests.network.room import LOCAL, Listen, Origin, echo, listener, origin
from tests.patience import until
from tests.sandboxes import home, rpc

__all__ = ["home", "listener", "origin", "rpc"]
pytestmark = pytest.mark.walls
VALUE = "sk-at-home-0c1d2e3f"


@pytest.fixture
def offline(rpc: list[str]) -> list[str]:
    """A server on a machine without any network: what is reached was reached from here."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    return ["unshare", *(() if os.geteuid() == 0 else ("-r",)), "-n", *rpc]


Make = Callable[..., Client]


@pytest.fixture
def make(offline: list[str], tmp_path: Path) -> Iterator[Make]:
    """Makes clients whose gate finds `api.test` on the loopback."""
    made: list[Client] = []

    def start(network: dict[str, Any], *, hooks: object | None = None, **more: Any) -> Client:
        config = {"network": {"gate": "client", **network}, **more}
        one = Client(config, hooks=hooks, command=offline)
        made.append(one)
        assert one._home is not None
        one._home._gate.resolve = lambda host, port: LOCAL if host == "api.test" else []
        return one

    yield start
    for one in made:
        one.close()


def recorded(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "audit" / "audit.jsonl").read_text().splitlines()]


def test_connections_are_made_by_the_client_and_judged_there(make: Make, origin: Origin, home: Path) -> None:
    sandbox = make({"allowed_hosts": ["api.test", *LOCAL]})
    seen: list[dict[str, Any]] = []
    sandbox.on_event(seen.append)
    got = sandbox.exec(f"curl -sS http://api.test:{origin.port}/hello", check=True)
    assert got.stdout == f"GET /hello for api.test:{origin.port}\n"
    refused = sandbox.exec(f"curl -sS http://other.test:{origin.port}/")
    assert "other.test" in refused.stdout + refused.stderr and "GET /" not in refused.stdout
    entries = [one for one in recorded(home) if one.get("operation") == "network"]
    assert {one["result"] for one in entries} == {"allowed", "blocked"}
    assert [one["network"]["blocked"] for one in seen if one["type"] == "network"]


def test_a_secret_is_put_in_by_the_client_and_never_leaves_it(make: Make, tmp_path: Path, home: Path) -> None:
    pki = Pki(tmp_path)
    served = Origin(pki.server_context(["api.test"], ["http/1.1"]))
    heard: list[str] = []
    plain: Any = served.server.RequestHandlerClass

    class Hearing(plain):  # type: ignore[misc]
        def do_GET(self) -> None:
            heard.append(self.headers["Authorization"])
            super().do_GET()

    served.server.RequestHandlerClass = Hearing
    secrets = {"KEY": {"value": VALUE, "hosts": ["api.test"]}}
    network = {"allowed_hosts": ["api.test", *LOCAL], "ca_certificates": [pki.file], "secrets": secrets}
    try:
        sandbox = make(network, environment={"set": {"KEY": "${KEY}"}})
        url = f"https://api.test:{served.port}/asked"
        told = sandbox.exec(f'curl -sS -H "Authorization: Bearer $KEY" {url}', check=True).stdout
        assert told.startswith("GET /asked") and heard == [f"Bearer {VALUE}"]
        assert sandbox.exec("printf %s $KEY", check=True).stdout.startswith("SANDBOX_PLACEHOLDER_")
        sent = json.dumps(sandbox._connection.call("policy", {}))
        assert VALUE not in sent and json.loads(sent)["network"]["secrets"] == {}
    finally:
        served.close()


def test_certificates_that_the_client_names_are_trusted_inside(make: Make, tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    served = Origin(pki.server_context(["api.test"], ["http/1.1"]))
    try:  # nothing is intercepted: the program inside checks the origin's own certificate
        sandbox = make({"allowed_hosts": ["api.test", *LOCAL], "ca_certificates": [pki.file]})
        assert sandbox.exec(f"curl -sS https://api.test:{served.port}/x", check=True).stdout.startswith("GET /x")
    finally:
        served.close()


def test_hooks_and_changed_rules_count_at_once(make: Make, origin: Origin) -> None:
    asked: list[str] = []

    def on_request(request: Any) -> Any:
        asked.append(request.url)
        return request

    sandbox = make({"allowed_hosts": LOCAL}, hooks=SimpleNamespace(on_request=on_request))
    curl = f"curl -sS http://api.test:{origin.port}/x"
    assert "GET /x" not in sandbox.exec(curl).stdout and asked == []
    sandbox.update_network({"allowed_hosts": ["api.test", *LOCAL]})
    assert sandbox.exec(curl, check=True).stdout.startswith("GET /x")
    assert asked == [f"http://api.test:{origin.port}/x"]


def test_much_data_goes_both_ways_and_each_direction_ends_by_itself(make: Make, listener: Listen) -> None:
    port = listener(echo).port
    sandbox = make({"allowed_hosts": [f"tcp:api.test:{port}", *LOCAL]})
    script = (
        "import socket, threading, hashlib\n"
        f"line = socket.create_connection(('api.test', {port}))\n"
        "data = bytes(range(256)) * 4096 * 8\n"
        "def send():\n    line.sendall(data); line.shutdown(socket.SHUT_WR)\n"
        "threading.Thread(target=send).start()\n"
        "got = b''.join(iter(lambda: line.recv(65536), b''))\n"
        "print(len(got), got == data)"
    )
    assert sandbox.exec(["/usr/bin/python3", "-c", script], check=True).stdout == f"{2**23} True\n"


def test_what_a_tenant_resets_or_floods_ends_no_other_connection(make: Make, origin: Origin, listener: Listen) -> None:
    port = listener(echo).port
    sandbox = make({"allowed_hosts": ["api.test", f"tcp:api.test:{port}", *LOCAL]})
    script = (
        "import os, socket, struct\n"
        "for number in range(300):\n"
        f"    line = socket.create_connection(('api.test', {port})); line.sendall(b'y' * 10000)\n"
        "    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); line.close()\n"
        "names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for number in range(2000): names.sendto(os.urandom(40), ('198.18.0.2', 53))\n"
    )
    sandbox.exec(["/usr/bin/python3", "-c", script], check=True)
    assert sandbox.exec(f"curl -sS http://api.test:{origin.port}/x", check=True).stdout.startswith("GET /x")


def test_a_port_of_the_clients_loopback_is_lent_and_a_published_one_is_here(make: Make, origin: Origin) -> None:
    sandbox = make({"localhost_ports": [origin.port], "publish": ["127.0.0.1:0:8000"]})
    got = sandbox.exec(f"curl -sS http://127.0.0.1:{origin.port}/lent", check=True)
    assert got.stdout.startswith("GET /lent")
    serve = "import os, socket; s = socket.create_server(('127.0.0.1', 8000)); os.write(1, b'up'); "
    with sandbox.spawn(["/usr/bin/python3", "-c", f"{serve}s.accept()[0].sendall(b'inside')"]) as process:
        assert next(iter(process.chunks())).data == b"up"
        [published] = sandbox.ports
        with socket.create_connection((published.address, published.port), 30) as line:
            assert line.recv(100) == b"inside"


def test_when_the_client_is_gone_nothing_is_reached(make: Make, origin: Origin) -> None:
    sandbox = make({"allowed_hosts": ["api.test", *LOCAL]})
    curl = f"curl -sS --max-time 20 http://api.test:{origin.port}/x"
    assert sandbox.exec(curl, check=True).stdout.startswith("GET /x")
    assert sandbox._home is not None
    sandbox._home.close()  # as if the gate alone had died; the sandbox goes on
    assert sandbox.exec(f"{curl} || echo refused").stdout == "refused\n"


def test_a_server_refuses_a_client_that_asks_for_its_gate_and_has_none(rpc: list[str]) -> None:
    from sandbox.rpc.connection import Connection

    line = Connection.start(rpc)
    try:
        with pytest.raises(ConfigError, match="no gate of its own"):
            line.call("create", {"network": {"gate": "client"}})
        with pytest.raises(ConfigError, match="belongs to the gate of the client"):
            line.call("create", {"network": {"publish": ["127.0.0.1:0:80"]}, "gate": {"certificate": "x"}})
    finally:
        line.close()


def test_only_one_gate_is_taken_and_none_where_it_is_here(make: Make, rpc: list[str]) -> None:
    sandbox = make({})
    with pytest.raises(SandboxError, match="already"):
        sandbox._connection.stream("gate", {}).next()
    with Client({}, command=rpc) as other, pytest.raises(SandboxError, match="has its gate here"):
        other._connection.stream("gate", {}).next()


def test_a_fork_has_a_gate_of_its_own_with_the_same_rules(make: Make, origin: Origin) -> None:
    sandbox = make({"localhost_ports": [origin.port]}, filesystem={"overlay": True})
    curl = f"curl -sS http://127.0.0.1:{origin.port}/x"
    [fork] = sandbox.fork()
    with fork:
        assert fork.exec(curl, check=True).stdout.startswith("GET /x")
        assert fork._home is not None and fork._home is not sandbox._home
    assert sandbox.exec(curl, check=True).stdout.startswith("GET /x")


def test_questions_are_asked_here(make: Make, origin: Origin) -> None:
    asked: list[Any] = []

    def on_ask(question: Any) -> str:
        asked.append(question.host)
        return "once"

    network = {"ask": True, "allowed_hosts": LOCAL}
    sandbox = make(network, hooks=SimpleNamespace(on_ask=on_ask))
    assert sandbox.exec(f"curl -sS http://api.test:{origin.port}/x", check=True).stdout.startswith("GET /x")
    assert asked == ["api.test"]


def test_questions_are_shown_while_a_program_prints_a_secret(make: Make, tmp_path: Path) -> None:
    sandbox = make({"ask": True, "secrets": {"FIRST": {"value": VALUE, "hosts": ["api.test"]}}})
    printed = tmp_path / "printed"
    os.mkfifo(printed)
    secret = {"TOKEN": {"from_command": ["cat", str(printed)], "hosts": ["api.test"]}}
    with ThreadPoolExecutor(2) as threads:
        update = threads.submit(sandbox.update_network, {"secrets": secret})
        program = until(lambda: _reader_of(printed))
        asks = threads.submit(sandbox.asks)
        wait([asks], 30)
        shown = asks.done() and not update.done()
        os.write(program, VALUE.encode())
        os.close(program)
        update.result()
        assert asks.result() == [] and shown


def _reader_of(fifo: Path) -> int:
    """Its other end, when somebody reads it."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return 0


class LyingNode:
    """Calls over a connection whose other end says this, where a node's gate would speak."""

    def __init__(self, said: bytes) -> None:
        self.events = SimpleNamespace(emit=lambda event: None)
        self._said = said

    def tunnel(self, *_: object) -> socket.socket:
        ours, self.end = socket.socketpair()
        self.end.sendall(len(self._said).to_bytes(4, "little") + self._said)
        return ours


@pytest.mark.parametrize("said", [{"t": "hello"}, {"t": "ready", "sockets": ["x"]}, {"t": "ready", "sockets": 1}])
def test_a_node_that_passes_nothing_on_is_an_error(
    home: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    node: Any = LyingNode(cbor2.dumps(said))
    monkeypatch.setattr(home_gate, "tunnel", node.tunnel)
    gate = home_gate.HomeGate({"network": {"gate": "client"}}, None)
    with pytest.raises(SandboxError):  # in whose words depends on who is faster
        gate.serve(node, "vm-lies")
    gate.close()
    node.end.close()
