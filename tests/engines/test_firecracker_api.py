"""The conversations with Firecracker, held with a server that is as strict as it is; no machine is started."""

from __future__ import annotations

import gzip
import lzma
import os
import socket
import socketserver
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from sandbox import Sandbox
from sandbox.engines.firecracker import engine, vsock
from sandbox.engines.firecracker.api import Api
from sandbox.engines.firecracker.engine import furnish
from sandbox.engines.firecracker.vmlinux import vmlinux
from sandbox.engines.machine.room_paths import RUN
from sandbox.engines.machine.running import bare_room
from sandbox.errors import EngineUnavailable, WallError
from tests.engines import firecracker_stand_in as stand_in


class NoMachine(stand_in.Machine):
    """Does everything but run."""

    def __init__(self) -> None:
        super().__init__("/nowhere")
        self.did: list[str] = []

    def start(self) -> None:
        self.did.append("start")
        self._monitor = True

    def ask(self, command: str, **arguments: object) -> None:
        self.did.append(command)

    def save(self, state: str, memory: str) -> None:
        self.did.append(f"save {state} {memory}")

    def load(self, state: str, memory: str) -> None:
        self.did.append(f"load {state} {memory}")
        self._monitor = True


@pytest.fixture
def conversation(tmp_path: Path) -> Iterator[tuple[Api, NoMachine]]:
    machine = NoMachine()
    handler = type("Handler", (stand_in.Handler,), {"machine": machine})
    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "api.sock"), handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(str(tmp_path / "api.sock"))
        api = Api(stream)
        try:
            yield api, machine
        finally:
            api.close()
            server.shutdown()
            thread.join()


def configure(api: Api) -> None:
    api.configure(cpus=2, memory_mb=512, kernel="/k", initrd="/i", words="quiet", tap="tap0", vsock="/v")


def test_a_machine_is_described_started_paused_saved_and_continues(conversation: tuple[Api, NoMachine]) -> None:
    api, machine = conversation
    configure(api)
    api.start()
    api.pause()
    api.save("/state", "/memory")
    api.resume()
    assert machine.did == ["start", "stop", "save /state /memory", "cont"]
    assert machine.said["/machine-config"] == {"vcpu_count": 2, "mem_size_mib": 512, "smt": False}
    assert machine.said["/vsock"] == {"guest_cid": 3, "uds_path": "/v"}


def test_a_saved_machine_is_loaded_by_a_firecracker_that_knows_nothing(conversation: tuple[Api, NoMachine]) -> None:
    api, machine = conversation
    api.load("/state", "/memory")
    assert machine.did == ["load /state /memory"]
    with pytest.raises(WallError, match="refused /boot-source.*after starting"):
        configure_source(api)


def configure_source(api: Api) -> None:
    api.put("/boot-source", {"kernel_image_path": "/k"})


def test_what_firecracker_refuses_is_an_error_in_its_words(conversation: tuple[Api, NoMachine]) -> None:
    api, _ = conversation
    with pytest.raises(WallError, match="refused /vm: .*before starting the microVM"):
        api.pause()
    with pytest.raises(WallError, match="the fields of PUT /actions"):
        api.put("/actions", {"action_type": "InstanceStart", "more": 1})
    configure(api)  # and the conversation goes on


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"rubbish\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 100_000,
        b"HTTP/1.1 400 Bad\r\nContent-Length: 3\r\n\r\n[[[",
        b"HTTP/1.1 400 Bad\r\nContent-Length: 30\r\n\r\n" + b'{"fault_message": "\x1b[31m"}   ',
    ],
)
def test_a_firecracker_that_says_something_else_is_an_error(answer: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(WallError) as caught:
            Api(ours).pause()
    assert "\x1b" not in str(caught.value)
    ours.close()


# -- vsock


def serve_once(path: Path, answer: Callable[[socket.socket], None]) -> Thread:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()

    def serve() -> None:
        with listening, listening.accept()[0] as stream:
            answer(stream)

    thread = Thread(target=serve)
    thread.start()
    return thread


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_a_port_is_asked_for_and_what_follows_the_answer_is_the_machines(tmp_path: Path, directory: int) -> None:
    asked: list[bytes] = []

    def answer(stream: socket.socket) -> None:
        asked.append(stream.recv(99))
        stream.sendall(b"OK 1073741824\nhello")

    thread = serve_once(tmp_path / "v.sock", answer)
    with vsock.connect(directory, "v.sock", 1025) as stream:
        assert stream.recv(99) == b"hello"
    thread.join()
    assert asked == [b"CONNECT 1025\n"]


@pytest.mark.parametrize("said", [b"", b"NO\n", b"OK", b"x" * 100])
def test_a_port_on_which_nobody_listens_is_an_error(tmp_path: Path, directory: int, said: bytes) -> None:
    def answer(stream: socket.socket) -> None:
        stream.recv(99)
        stream.sendall(said)

    thread = serve_once(tmp_path / "v.sock", answer)
    with pytest.raises(WallError, match="does not listen on port 7"):
        vsock.connect(directory, "v.sock", 7)
    thread.join()


def test_a_link_in_the_room_does_not_lead_to_a_socket_of_the_hosts(tmp_path: Path, directory: int) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "of-the-host"))
        listening.listen()
        (tmp_path / "v.sock").symlink_to(tmp_path / "of-the-host")
        with pytest.raises(WallError, match="is no socket"):
            vsock.reach(directory, "v.sock", 0)


# -- the kernel

KERNEL = b"\x7fELF" + bytes(range(256)) * 40


def image(packed: bytes) -> bytes:
    head = bytearray(1024)
    head[0x1F1] = 1
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", head, 0x248, 16, len(packed))
    return bytes(head) + bytes(16) + packed + b"padding"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_the_kernel_is_taken_out_of_a_distributions_image(pack: Callable[[bytes], bytes]) -> None:
    assert vmlinux(image(pack(KERNEL) + struct.pack("<I", len(KERNEL)))) == KERNEL
    assert vmlinux(KERNEL) == KERNEL


@pytest.mark.parametrize(
    "data", [b"", b"MZ" + bytes(2000), image(b"unknown"), image(gzip.compress(b"no program")), image(b"\xfd7zXZ\0bad")]
)
def test_an_image_that_cannot_be_unpacked_is_an_error(data: bytes) -> None:
    with pytest.raises(EngineUnavailable, match="cannot be unpacked"):
        vmlinux(data)


# -- the machine around it


def test_what_is_missing_is_said_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"engine": "firecracker", "filesystem": {"root": str(tmp_path)}}
    with pytest.raises(EngineUnavailable, match="Firecracker is not installed"):
        Sandbox(config)
    program = tmp_path / "firecracker"
    program.touch(0o755)
    monkeypatch.setattr(engine, "PLACES", (str(program),))
    monkeypatch.setattr(engine, "find_kernel", lambda: None)
    monkeypatch.setattr(engine, "why_not", lambda: "no processor ran")
    with pytest.raises(EngineUnavailable, match="needs KVM: no processor ran"):
        Sandbox(config)
    assert not engine.finding().ok


@pytest.mark.root  # /dev/net/tun is root's on this machine
def test_a_room_for_it_has_a_card_its_devices_and_a_place_for_sockets(tmp_path: Path) -> None:
    room = bare_room(str(tmp_path), furnish)
    try:
        request: dict[str, object] = {"argv": [b"/bin/sh", b"-c", SEEN], "env": [], "cwd": b"/"}
        read, write = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        process = room.start(request, "sh", (null, write, write))
        os.close(write)
        os.close(null)
        with os.fdopen(read) as output:
            assert output.read().split() == ["tap0", "tun", "run"]
        process.close()
    finally:
        room.close()


SEEN = f"grep -o tap0 /proc/net/dev; : <> /dev/net/tun && echo tun; touch {RUN}/x && echo run".encode()
