"""The wire: the same bytes on both sides, and nothing hostile gets further than its own connection."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.guest import cbor
from sandbox.vfs import protocol
from sandbox.vfs.memory import MemoryProvider
from sandbox.vfs.protocol import BrokenFrame, ProviderOp
from sandbox.vfs.provider import Provider
from sandbox.vfs.provider_server import MOST_HANDLES, ProviderServer, serve
from sandbox.vfs.readonly import ReadonlyProvider
from sandbox.vfs.realfs import RealFSProvider
from sandbox.vfs.remote_provider import RemoteProvider

VECTORS = json.loads((Path(__file__).parent / "wire_vectors.json").read_text())


def plain(value: Any) -> Any:
    """JSON has no bytes: the vectors write them as {"bytes": hex}."""
    if not isinstance(value, dict):
        return value
    if set(value) == {"bytes"}:
        return bytes.fromhex(value["bytes"])
    return {key: plain(one) for key, one in value.items()}


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["what"] for vector in VECTORS])
def test_both_sides_speak_the_same_bytes(vector: dict[str, Any]) -> None:
    body, message = bytes.fromhex(vector["hex"]), plain(vector["message"])
    assert cbor.encode(message) == body
    assert protocol.decode(body) == message


def test_the_numbers_of_the_first_version_never_change() -> None:
    first = "LOOKUP GETATTR SETATTR READ WRITE CREATE MKDIR UNLINK RMDIR RENAME OPEN RELEASE READDIR FSYNC"
    assert " ".join(ProviderOp(number).name for number in range(14)) == first


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[MemoryProvider, str]]:
    """A provider behind a Unix socket."""
    provider = MemoryProvider()
    provider.write_file("/a", "content")
    path = str(tmp_path / "vfs.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    server = ProviderServer(provider, listener)
    yield provider, path
    server.close()


def connect(path: str) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(20)
    stream.connect(path)
    return stream


def test_several_clients_share_a_provider(served: tuple[MemoryProvider, str]) -> None:
    provider, path = served
    one, other = RemoteProvider(connect(path)), RemoteProvider(connect(path))
    handle = one.create("/new", 0o644)
    handle.write(memoryview(b"x" * 3_000_000), 0)
    handle.close()
    assert other.stat("/new").size == 3_000_000
    assert provider.read_file("/new") == b"x" * 3_000_000
    reader = other.open("/new", os.O_RDONLY)
    assert len(reader.read(4_000_000, 0)) == 3_000_000
    for client in (one, other):
        client.close()


def test_large_directories_come_in_several_answers(served: tuple[MemoryProvider, str]) -> None:
    provider, path = served
    for number in range(3000):
        provider.write_file(f"/d/{number}", b"")
    client = RemoteProvider(connect(path))
    assert len(client.readdir("/d")) == 3000
    client.close()


def test_a_connection_that_ends_closes_its_files(served: tuple[MemoryProvider, str]) -> None:
    provider, path = served
    client = RemoteProvider(connect(path))
    client.open("/a", os.O_RDONLY)
    provider.remove("/a")
    client.close()
    probe = RemoteProvider(connect(path))
    # Its space comes back once the other connection's thread has seen the end.
    while provider._open:
        probe.stat("/")
    assert provider.statfs().files - provider.statfs().files_free == 1
    probe.close()


HOSTILE = {
    "a length beyond all bounds": struct.pack("<I", 1 << 31),
    "an empty frame": struct.pack("<I", 0),
    "no CBOR": struct.pack("<I", 3) + b"\xff\xff\xff",
    "not a map": struct.pack("<I", 1) + b"\x01",
    "deep nesting": struct.pack("<I", 100) + b"\x81" * 100,
    "a huge array": struct.pack("<I", 9) + b"\x9b" + b"\xff" * 8,
    "bytes after the map": struct.pack("<I", 2) + b"\xa0\xa0",
    "a frame that never ends": struct.pack("<I", 1000) + b"\xa1",
}


@pytest.mark.parametrize("frame", HOSTILE.values(), ids=HOSTILE)
def test_a_broken_frame_ends_the_connection_and_nothing_else(served: tuple[MemoryProvider, str], frame: bytes) -> None:
    _, path = served
    stream = connect(path)
    protocol.send(stream, {"op": ProviderOp.HELLO.value, "fh": 1})
    assert protocol.receive(stream) == {"err": 0, "fh": 1, "flags": 2}
    stream.sendall(frame)
    stream.shutdown(socket.SHUT_WR)
    assert stream.recv(100) == b""
    stream.close()
    other = RemoteProvider(connect(path))
    assert other.stat("/a").size == 7
    other.close()


REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "a way up": ({"op": 0, "path": "/../etc/passwd"}, errno.EINVAL),
    "a way up in the middle": ({"op": 10, "path": "/a/../../x"}, errno.EINVAL),
    "a way up as the target": ({"op": 9, "path": "/a", "to": "/../x"}, errno.EINVAL),
    "an unknown operation": ({"op": 200}, errno.ENOSYS),
    "a file that is not open": ({"op": 3, "fh": 77}, errno.EBADF),
    "a path too long": ({"op": 0, "path": "/" + "x" * 5000}, errno.ENAMETOOLONG),
    "an unlink of a directory": ({"op": 7, "path": "/"}, errno.EISDIR),
}


@pytest.mark.parametrize(("request_", "number"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_is_answered(
    served: tuple[MemoryProvider, str], request_: dict[str, Any], number: int
) -> None:
    _, path = served
    stream = connect(path)
    protocol.send(stream, {"op": ProviderOp.HELLO.value, "fh": 1})
    protocol.receive(stream)
    protocol.send(stream, {**request_, "id": 9})
    assert protocol.receive(stream) == {"err": -number, "id": 9}
    stream.close()


def test_a_client_that_does_not_greet_is_not_answered(served: tuple[MemoryProvider, str]) -> None:
    stream = connect(served[1])
    protocol.send(stream, {"op": 0, "path": "/a"})
    assert protocol.receive(stream) is None
    stream.close()


def test_open_files_are_bounded(served: tuple[MemoryProvider, str]) -> None:
    client = RemoteProvider(connect(served[1]))
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        for _ in range(MOST_HANDLES + 1):
            client.open("/a", os.O_RDONLY)
    client.close()


def test_raw_messages_lead_nowhere_outside(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root/link").symlink_to("../secret")
    (tmp_path / "root/up").symlink_to("..")
    with talking(RealFSProvider(str(tmp_path / "root"))) as client:
        for path in ("/link", "/up/secret", "/../secret", "//../secret", "/./../secret"):
            with pytest.raises(OSError):
                client.open(path, os.O_RDWR)
            with pytest.raises(OSError):
                client.setattr(path, size=0)
    assert (tmp_path / "secret").read_text() == "secret"


def test_a_read_only_provider_is_never_asked_to_change() -> None:
    below = MemoryProvider()
    below.write_file("/a", "kept")
    with talking(ReadonlyProvider(below)) as client:
        assert client.readonly
        for attempt in (
            lambda: client.open("/a", os.O_RDWR),
            lambda: client.open("/a", os.O_TRUNC),
            lambda: client.remove("/a"),
            lambda: client.create("/b", 0o644),
            lambda: client.setattr("/a", size=0),
        ):
            with pytest.raises(OSError, match="Read-only"):
                attempt()
    assert below.read_file("/a") == b"kept"


class talking:
    """A client whose server is a thread here."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def __enter__(self) -> RemoteProvider:
        ours, self._theirs = socket.socketpair()
        self._thread = Thread(target=serve, args=(self._provider, self._theirs))
        self._thread.start()
        self._client = RemoteProvider(ours)
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._thread.join()
        self._theirs.close()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=20) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(["path", "fh", "off", "sz", "data", "flags", "mode", "id", "to", "set", "name"])
ANSWERS = st.sampled_from(
    ["err", "stat", "data", "written", "fh", "entries", "id", "flags", "target", "space", "names"]
)


@given(st.dictionaries(FIELDS, VALUES, max_size=8), st.integers(0, 30))
def test_no_request_breaks_the_server(fields: dict[str, Any], op: int) -> None:
    """Any request is answered with an errno or ends the connection; nothing else happens."""
    from sandbox.vfs.provider_server import _Line

    line = _Line(MemoryProvider(size=1 << 20))
    line.answer({"op": ProviderOp.HELLO.value, "fh": 1})
    try:
        answer = line.answer({"op": op, **fields})
    except BrokenFrame:
        pass
    else:
        assert -4096 < answer["err"] <= 0
        cbor.encode(answer)
    finally:
        line.close()


@given(st.binary(max_size=64))
def test_no_bytes_break_the_decoder(body: bytes) -> None:
    try:
        assert isinstance(protocol.decode(body), dict)
    except BrokenFrame:
        pass


@given(st.dictionaries(ANSWERS, VALUES))
def test_no_answer_breaks_the_client(answer: dict[str, Any]) -> None:
    """A server that lies gives errors, nothing else."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        protocol.send(theirs, {"err": 0, "fh": 1})
        client = RemoteProvider(ours)
        for attempt in (
            lambda: client.stat("/"),
            lambda: client.readlink("/"),
            lambda: client.statfs(),
            lambda: client.listxattr("/"),
            lambda: client.open("/", 0).read(10, 0),
        ):
            protocol.send(theirs, answer)
            protocol.send(theirs, answer)
            try:
                attempt()
            except (BrokenFrame, OSError):
                pass


SIGNS = st.characters(exclude_categories=()) | st.sampled_from("\0\udcff\ud800/.")
ODD = st.text(SIGNS, max_size=30) | st.just("x" * 9000)


@given(st.lists(ODD, min_size=1, max_size=4))
def test_no_path_ends_the_connection(paths: list[str]) -> None:
    """Whatever a tenant names, only that operation fails."""
    below = MemoryProvider()
    below.write_file("/a", "kept")
    with talking(below) as client:
        for path in paths:
            for attempt in (
                lambda path=path: client.stat(path),
                lambda path=path: client.mkdir(path, 0o755),
                lambda path=path: client.rename("/a", path),
                lambda path=path: client.symlink(path, "/link"),
                lambda path=path: client.getxattr("/a", path),
            ):
                try:
                    attempt()
                except OSError:
                    pass
            below.write_file("/a", "kept")
        assert client.open("/a", os.O_RDONLY).read(9, 0) == b"kept"


def test_a_nul_from_a_client_in_another_language_fails_that_request_alone() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = Thread(target=serve, args=(MemoryProvider(), theirs))
        thread.start()
        for request in (
            {"op": ProviderOp.HELLO.value, "fh": 1},
            {"op": ProviderOp.LOOKUP.value, "path": "/a\0b"},
            {"op": ProviderOp.MKDIR.value, "path": b"/\0"},
            {"op": ProviderOp.RENAME.value, "path": "/x", "to": "/\0"},
            {"op": ProviderOp.LOOKUP.value, "path": 5},
        ):
            protocol.send(ours, request)
            answer = protocol.receive(ours)
            assert answer is not None
            assert answer["err"] == (0 if request["op"] == ProviderOp.HELLO.value else -errno.EINVAL)
        protocol.send(ours, {"op": ProviderOp.LOOKUP.value, "path": "/"})
        answer = protocol.receive(ours)
        assert answer is not None
        assert answer["err"] == 0
        ours.close()
        thread.join()
