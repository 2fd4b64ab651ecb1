"""Explicit proxy requests meet the same policy, whatever they say."""

from __future__ import annotations

import socket
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.config.model import Network
from sandbox.network.gate_thread import GateThread
from tests.network.room import LOCAL, Heard, Listener, Origin, echo


class Proxy:
    """A gate that has only its explicit proxy, on the host's loopback."""

    def __init__(self, names: Mapping[str, list[str]], network: dict[str, object], **more: Any) -> None:
        self.heard = Heard()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.watch = GateThread(
            {"proxy": self.listener},
            Network.read(network),
            sandbox_id="test",
            emit=self.heard.emit,
            record=self.heard.record,
            dial=lambda address, port: socket.create_connection((address, port)),
            resolve=lambda host, port: names[host],
            **more,
        )
        self.watch.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def ask(self, data: bytes) -> bytes:
        """Everything that comes back for `data`, until the end."""
        with self.connect() as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.fixture
def proxy() -> Iterator[Callable[..., Proxy]]:
    made: list[Proxy] = []

    def make(
        names: Mapping[str, list[str]] | None = None, more: dict[str, Any] | None = None, **network: object
    ) -> Proxy:
        made.append(Proxy(names or {}, network, **(more or {})))
        return made[-1]

    yield make
    for one in made:
        one.watch.close()


@pytest.fixture
def good(proxy: Callable[..., Proxy]) -> Proxy:
    return proxy({"good.test": LOCAL}, allowed_hosts=["good.test", *LOCAL])


def test_connect_opens_a_tunnel_to_an_allowed_host(good: Proxy, listener: Callable[..., Listener]) -> None:
    port = listener(echo).port
    answer = good.ask(f"CONNECT good.test:{port} HTTP/1.1\r\nHost: x\r\n\r\nhello".encode())
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\nhello"


def test_connect_to_another_is_a_403_that_says_why(good: Proxy) -> None:
    answer = good.ask(b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ") and b"X-Proxy-Error: blocked-by-allowlist\r\n" in answer
    assert b"evil.test:443 is not allowed" in answer
    assert good.heard.blocked("evil.test:443")


@pytest.mark.parametrize(
    "target",
    ["8.8.8.8:443", "0x7f.1:80", "[::1]:80", "169.254.169.254:80", "198.18.0.3:3128", "198.18.1.0:80", "2130706433:80",
     "[::ffff:10.0.0.1]:80", "evil.test.:443", "good.test:22"],
)  # fmt: skip
def test_connect_to_an_address_or_back_to_the_proxy_is_refused(proxy: Callable[..., Proxy], target: str) -> None:
    one = proxy({"good.test": LOCAL}, allowed_hosts=["good.test"])
    assert one.ask(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("host", ["GOOD.TEST", "good.test.", "Good.Test"])
def test_spellings_of_an_allowed_name_are_that_name(good: Proxy, listener: Callable[..., Listener], host: str) -> None:
    assert b"200" in good.ask(f"CONNECT {host}:{listener(echo).port} HTTP/1.1\r\n\r\n".encode())[:20]


def test_an_absolute_url_is_fetched_in_origin_form(good: Proxy, origin: Origin) -> None:
    head = f"GET http://good.test:{origin.port}/a?b HTTP/1.1\r\nHost: good.test:{origin.port}\r\nProxy-X: y\r\n\r\n"
    answer = good.ask(head.encode())
    assert answer.startswith(b"HTTP/1.1 200") and f"GET /a?b for good.test:{origin.port}".encode() in answer


def test_an_absolute_url_elsewhere_is_a_403(good: Proxy) -> None:
    answer = good.ask(b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ") and b"add 'evil.test' to network.allowed_hosts" in answer


@pytest.mark.parametrize(
    "request_",
    [
        b"GET http://good.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nHost: good.test\r\n\r\n",
        b"GET http://user@good.test/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n",
        b"GET https://good.test/ HTTP/1.1\r\n\r\n",
        b"CONNECT good.test HTTP/1.1\r\n\r\n",
        b"CONNECT good.test:0 HTTP/1.1\r\n\r\n",
        b"CONNECT good.test:443/x HTTP/1.1\r\n\r\n",
        b"CONNECT good.test\0.evil.test:443 HTTP/1.1\r\n\r\n",
        b"CONNECT good.test:443 HTTP/1.1\r\n folded: x\r\n\r\n",
        b"CONNECT good.test:443 HTTP/1.1\r\nA\0: b\r\n\r\n",
        b"CONNECT  good.test:443 HTTP/1.1\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"A" * 20000,
    ],
)
def test_requests_that_could_be_read_two_ways_are_bad(good: Proxy, request_: bytes) -> None:
    assert good.ask(request_).startswith(b"HTTP/1.1 400 ")
    assert good.heard.events == []


def test_a_placeholder_in_a_connect_is_refused(proxy: Callable[..., Proxy]) -> None:
    secret = {"value": "the-real-one", "hosts": ["api.test"]}
    one = proxy(
        {"good.test": LOCAL},
        {"placeholders": {"KEY": "placeholder-1234"}},
        allowed_hosts=["good.test", *LOCAL],
        secrets={"KEY": secret},
    )
    answer = one.ask(b"CONNECT good.test:443 HTTP/1.1\r\nX-Key: placeholder-1234\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ") and b"Rule: network.secrets.KEY" in answer


def test_with_a_token_only_those_who_know_it_are_served(
    proxy: Callable[..., Proxy], listener: Callable[..., Listener]
) -> None:
    one = proxy({"good.test": LOCAL}, {"proxy_token": "t0ken"}, allowed_hosts=["good.test", *LOCAL])
    request = f"CONNECT good.test:{listener(echo).port} HTTP/1.1\r\n".encode()
    basic = b64encode(b"sandbox:t0ken")
    assert one.ask(request + b"\r\n").startswith(b"HTTP/1.1 407 ")
    assert one.ask(request + b"Proxy-Authorization: Basic " + b64encode(b"sandbox:no") + b"\r\n\r\n").startswith(
        b"HTTP/1.1 407 "
    )
    assert one.ask(request + b"Proxy-Authorization: Basic " + basic + b"\r\n\r\nx").endswith(b"\r\n\r\nx")
    assert one.ask(b"\x05\x01\x00") == b"\x05\xff"
    assert one.ask(b"\x05\x01\x02\x01\x01u\x02no") == b"\x05\x02\x01\x01"
    assert one.ask(b"\x05\x01\x02\x01\x01u\x05t0ken" + socks(b"evil.test", 1)[3:])[:6] == b"\x05\x02\x01\x00\x05\x02"


# -- SOCKS


def socks(host: bytes, port: int, kind: int = 3, command: int = 1) -> bytes:
    address = bytes((len(host),)) + host if kind == 3 else host
    return b"\x05\x01\x00" + bytes((5, command, 0, kind)) + address + port.to_bytes(2, "big")


def test_socks_reaches_an_allowed_name(good: Proxy, listener: Callable[..., Listener]) -> None:
    answer = good.ask(socks(b"good.test", listener(echo).port) + b"hello")
    assert answer == b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0hello"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (socks(b"evil.test", 443), 2),
        (socks(b"good.test\0.evil.test", 443), 2),
        (socks(b"evil.test\0good.test", 443), 2),
        (socks(b"", 443), 2),
        (socks(b"caf\xc3\xa9.test", 443), 2),
        (socks(bytes((8, 8, 8, 8)), 443, kind=1), 2),
        (socks(bytes(15) + b"\1", 443, kind=4), 2),
        (socks(b"127.1", 443), 2),
        (socks(b"good.test", 443, command=2), 7),
        (socks(b"good.test", 443, command=3), 7),
        (socks(b"good.test", 443, kind=9), 8),
    ],
)
def test_socks_refuses_the_rest(proxy: Callable[..., Proxy], request_: bytes, code: int) -> None:
    one = proxy({"good.test": LOCAL}, allowed_hosts=["good.test"])
    assert one.ask(request_)[2:4] == bytes((5, code))


def test_socks_without_a_method_we_know_is_turned_away(good: Proxy) -> None:
    assert good.ask(b"\x05\x01\x02") == b"\x05\xff"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.one_of(st.binary(max_size=300), st.binary(max_size=100).map(lambda tail: b"\x05\x01\x00\x05\x01\x00" + tail)))
def test_garbage_gets_an_end_and_reaches_nobody(good: Proxy, data: bytes) -> None:
    with good.connect() as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        try:
            while client.recv(65536):
                pass
        except ConnectionResetError:
            pass
    assert not [one for one in good.heard.records if one["type"] == "fetch_proxy_error"]
    assert not [one for one in good.heard.events if not one["blocked"]]
