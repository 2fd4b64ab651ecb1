"""gRPC's own client and server, with the gate between them: every kind of call, secrets and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest

from tests.network.lab import PLACEHOLDER, VALUE, Lab, secret

grpc = pytest.importorskip("grpc")

MakeLab = Callable[..., Lab]
HOSTS = ("api.example.com", "other.example.com")


class Service(grpc.GenericRpcHandler):  # type: ignore[misc, name-defined]
    """Four methods, one of each kind; messages are plain bytes."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, str]] = []

    def service(self, details: Any) -> Any:
        self.metadata.append({one.key: one.value for one in details.invocation_metadata})
        return {
            "/t/unary": grpc.unary_unary_rpc_method_handler(lambda message, _: message[::-1]),
            "/t/down": grpc.unary_stream_rpc_method_handler(lambda message, _: (message for _ in range(50))),
            "/t/up": grpc.stream_unary_rpc_method_handler(lambda messages, _: b"%d" % sum(map(len, messages))),
            "/t/chat": grpc.stream_stream_rpc_method_handler(lambda messages, _: (one.upper() for one in messages)),
            "/t/fail": grpc.unary_unary_rpc_method_handler(self.fail),
        }.get(details.method)

    def fail(self, message: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"no more, {VALUE}")
        return b""


@pytest.fixture
def place(make_lab: MakeLab, tmp_path: Path) -> Iterator[tuple[Lab, Service]]:
    lab, service = make_lab({"secrets": {"KEY": secret()}}, protocols=["h2"]), Service()
    servers = []
    for host in HOSTS:
        pem = (tmp_path / f"{host}.pem").read_bytes()
        server = grpc.server(ThreadPoolExecutor(8), handlers=[service])
        key, chain = pem[pem.index(b"-----BEGIN PRIVATE") :], pem[: pem.index(b"-----BEGIN PRIVATE")]
        credentials = grpc.ssl_server_credentials([(key, chain)])
        lab.origins[host].port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        servers.append(server)
    yield lab, service
    for server in servers:
        server.stop(None).wait()


def channel(lab: Lab) -> Any:
    trusted = grpc.ssl_channel_credentials(Path(lab.ca_file).read_bytes())
    names = [("grpc.ssl_target_name_override", lab.host), ("grpc.default_authority", lab.host)]
    return grpc.secure_channel(f"127.0.0.1:{lab.port}", trusted, options=names)


def test_every_kind_of_call_works(place: tuple[Lab, Service]) -> None:
    lab, _ = place
    with channel(lab) as wire:
        assert wire.unary_unary("/t/unary")(b"abc", timeout=20) == b"cba"
        assert list(wire.unary_stream("/t/down")(b"x" * 10_000, timeout=20)) == [b"x" * 10_000] * 50
        assert wire.stream_unary("/t/up")(iter([b"y" * 100_000] * 30), timeout=20) == b"3000000"


@pytest.mark.parametrize("host", HOSTS)
def test_both_sides_talk_in_turn(place: tuple[Lab, Service], host: str) -> None:
    lab, _ = place
    lab.host = host  # to the second, bodies are searched
    with channel(lab) as wire:
        heard: list[bytes] = []
        answered = Semaphore(0)

        def talk() -> Iterator[bytes]:
            for word in (b"one", b"two", b"three"):
                yield word
                assert answered.acquire(timeout=20)  # each word waits for the answer to the last

        for answer in wire.stream_stream("/t/chat")(talk(), timeout=20):
            heard.append(answer)
            answered.release()
        assert heard == [b"ONE", b"TWO", b"THREE"]


def test_a_status_with_its_message_arrives_and_holds_no_value(place: tuple[Lab, Service]) -> None:
    lab, _ = place
    with channel(lab) as wire, pytest.raises(grpc.RpcError) as caught:
        wire.unary_unary("/t/fail")(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caught.value.details() == f"no more, {PLACEHOLDER}"


def test_a_secret_goes_in_by_metadata_and_never_to_another_host(place: tuple[Lab, Service]) -> None:
    lab, service = place
    metadata = [("authorization", f"Bearer {PLACEHOLDER}")]
    with channel(lab) as wire:
        wire.unary_unary("/t/unary")(b"abc", metadata=metadata, timeout=20)
    assert service.metadata[-1]["authorization"] == f"Bearer {VALUE}"
    count, lab.host = len(service.metadata), "other.example.com"
    with channel(lab) as wire, pytest.raises(grpc.RpcError) as caught:
        wire.unary_unary("/t/unary")(b"abc", metadata=metadata, timeout=20)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert len(service.metadata) == count
