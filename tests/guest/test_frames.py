"""Frames: both readers against the same vectors, and the guest's against everything else."""

from __future__ import annotations

import json
import os
import select
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.guest import cbor
from tests.guest.driver import WAIT, Place, descendants, launch, line_pair

ROOT = Path(__file__).resolve().parents[2]
VECTORS = json.loads((ROOT / "guest" / "vectors.json").read_text())


def plain(value: Any) -> Any:
    """A vector's value: JSON has no bytes."""
    if isinstance(value, dict):
        return bytes.fromhex(value["$bytes"]) if "$bytes" in value else {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def frame(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


class Reader:
    """The guest's reader under the sanitizers (decode.c)."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def read(self, stream: bytes) -> tuple[list[Any], bool]:
        """The frames of a stream, and whether it ended well."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(frame(stream))
        self.process.stdin.flush()
        found = []
        while (size := self._u32()) not in (0, 0xFFFFFFFF):
            found.append(cbor2.loads(self.process.stdout.read(size)))
        return found, size == 0

    def _u32(self) -> int:
        assert self.process.stdout
        data = self.process.stdout.read(4)
        assert len(data) == 4, "the reader crashed"
        return int(struct.unpack("<I", data)[0])


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    if not shutil.which("gcc"):
        pytest.skip("needs gcc and its sanitizers")
    program = tmp_path_factory.mktemp("decode") / "decode"
    sources = [Path(__file__).with_name("decode.c"), ROOT / "guest" / "cbor.c", ROOT / "guest" / "frame.c"]
    flags = ["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", *flags, "-o", program, *sources], check=True)
    made = Reader(program)
    yield made
    assert made.process.stdin and made.process.stdout
    made.process.stdin.close()
    assert made.process.wait(WAIT) == 0, "the sanitizers found something"
    made.process.stdout.close()


@pytest.mark.parametrize("vector", VECTORS["cbor"], ids=lambda v: v["name"])
def test_the_guest_reads_a_value_as_the_vectors_say(reader: Reader, vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    values, ended_well = reader.read(frame(data))
    assert ended_well is ("error" not in vector)
    # Its test program gives back what "v" holds, or the whole map without one.
    assert values == ([] if "error" in vector else [plain(vector["value"])])


@pytest.mark.parametrize("vector", VECTORS["cbor"], ids=lambda v: v["name"])
def test_the_host_reads_a_value_as_the_vectors_say(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    if "error" not in vector:
        value = plain(vector["value"])
        assert cbor.decode(data) == value
        assert cbor.encode(value) == data
    elif not vector["name"].startswith("not a map"):
        with pytest.raises(cbor.Malformed):
            cbor.decode(data)


@pytest.mark.parametrize("vector", VECTORS["streams"], ids=lambda v: v["name"])
def test_the_guest_reads_a_stream_as_the_vectors_say(reader: Reader, vector: dict[str, Any]) -> None:
    values, ended_well = reader.read(bytes.fromhex(vector["hex"]))
    assert ended_well is ("error" not in vector)
    assert values == [plain(value) for value in vector.get("values", [])]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=300) | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner), default=0) if isinstance(value, dict | list) else 0


@given(value=VALUES)
def test_whatever_the_host_writes_the_guest_reads(reader: Reader, value: Any) -> None:
    values, ended_well = reader.read(frame(cbor.encode({"v": value})))
    assert ended_well is (depth(value) < cbor.DEPTH)
    assert values == ([{"v": value}] if ended_well else [])


@given(strings=st.lists(st.binary(max_size=300), max_size=40))
def test_strings_that_were_encoded_before_are_the_same_frame(strings: list[bytes]) -> None:
    assert cbor.encode({"env": cbor.EncodedOnce(strings), "x": 1}) == cbor.encode({"env": strings, "x": 1})


@given(data=st.binary(max_size=2000))
def test_the_two_readers_never_disagree(reader: Reader, data: bytes) -> None:
    _judge(reader, data)


@given(value=VALUES, at=st.integers(0), change=st.binary(min_size=1, max_size=4), cut=st.integers(0, 3))
def test_the_two_readers_never_disagree_about_a_damaged_frame(
    reader: Reader, value: Any, at: int, change: bytes, cut: int
) -> None:
    data = bytearray(cbor.encode({"v": value}))
    at %= len(data)
    data[at : at + len(change) - cut] = change
    _judge(reader, bytes(data))


def _judge(reader: Reader, data: bytes) -> None:
    try:
        expected = cbor.decode(data)
    except cbor.Malformed:
        expected = None
    if not isinstance(expected, dict) or expected.get("fds", 0) != 0:
        expected = None
    values, _ = reader.read(frame(data))
    if expected is None:
        assert values == []
    else:
        assert values == [{"v": expected["v"]} if "v" in expected else expected]


def tenant(place: Place) -> int:
    """A tenant, as a pidfd on the host."""
    command = place.start("sleep", "7777")
    command.started()
    place.kept.append(command)
    return os.pidfd_open(descendants(place.process.pid)[-1])


REQUESTS = st.fixed_dictionaries(
    {"t": st.sampled_from(["exec", "file", "dial", "close", "setup", "hello", "signal", "in", "credit", "x"]) | VALUES},
    optional=dict.fromkeys(("id", "argv", "env", "cwd", "pty", "op", "path", "fds", "timeout_ms", "address"), VALUES),
)
STREAMS = st.one_of(
    st.binary(min_size=1, max_size=200),
    st.lists(REQUESTS, min_size=1, max_size=5).map(lambda frames: b"".join(frame(cbor2.dumps(one)) for one in frames)),
    st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=100)).map(
        lambda pair: struct.pack("<I", pair[0]) + pair[1]
    ),
)


@pytest.mark.parametrize("framed", [False, True])
@settings(max_examples=25)
@given(stream=STREAMS)
def test_whatever_comes_on_the_stream_the_guest_ends_and_leaves_nobody(
    guest: Path, framed: bool, stream: bytes
) -> None:
    with launch(guest, framed=framed) as place:
        place.setup(uid=1000, gid=1000)
        survivor = tenant(place) if not framed else os.pidfd_open(place.process.pid)
        try:
            place.stream.send_raw(stream)
        except OSError:
            pass  # it has closed already
        place.stream.close()
        assert place.process.wait(WAIT) in (0, 1), "it crashed"
        assert select.select([survivor], [], [], WAIT)[0]
        os.close(survivor)


@settings(max_examples=25)
@given(stream=STREAMS)
def test_whatever_comes_instead_of_a_set_up_the_guest_ends(guest: Path, stream: bytes) -> None:
    with launch(guest) as place:
        place.stream.receive()
        try:
            place.stream.send_raw(stream)
        except OSError:
            pass
        place.stream.close()
        assert place.process.wait(WAIT) in (0, 1)


@settings(max_examples=25)
@given(stream=STREAMS)
def test_whatever_comes_on_a_line_only_its_command_ends(guest: Path, stream: bytes) -> None:
    with launch(guest) as place:
        place.setup(uid=1000, gid=1000)
        command = place.start("sleep", "1000")
        command.started()
        try:
            command.line.send_raw(stream)
        except OSError:
            pass
        command.line.close()
        os.read(command.stdout, 1)
        os.close(command.stdout)
        os.close(command.stderr)
        assert place.run("true").code == 0


def test_descriptors_that_nobody_asked_for_end_the_place(guest: Path) -> None:
    for body in ({"t": "exec"}, {"t": "exec", "fds": 3}):
        with launch(guest) as place:
            place.setup(uid=1000, gid=1000)
            place.stream.send_raw(frame(cbor2.dumps(body)), (0, 1))
            assert place.process.wait(WAIT) == 1


def test_a_long_frame_that_never_comes_costs_no_memory(guest: Path) -> None:
    with launch(guest) as place:
        place.setup(uid=1000, gid=1000)
        place.stream.send_raw(struct.pack("<I", 4 << 20) + b"\xa1")
        # It waits for the rest; the announced four mebibytes were not taken.
        status = Path(f"/proc/{descendants(place.process.pid)[-1]}/status").read_text()
        assert int(status.split("VmRSS:")[1].split()[0]) < 3000


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The whole guest under the sanitizers. They need the C library's own loader: without walls only."""
    if not shutil.which("gcc"):
        pytest.skip("needs gcc and its sanitizers")
    program = tmp_path_factory.mktemp("sanitized") / "guest"
    flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", *flags, "-o", program, *(ROOT / "guest").glob("*.c")], check=True)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ASAN_OPTIONS", "detect_leaks=0:exitcode=99")
        environment.setenv("UBSAN_OPTIONS", "exitcode=99")
        yield program


#: Nothing here can change the machine it runs on.
HARMLESS = st.fixed_dictionaries(
    {"t": st.sampled_from(["exec", "file", "signal", "in", "credit", "resize", "cancel"]), "id": st.integers(0, 2)},
    optional={
        "argv": st.just([b"/bin/cat"]), "env": st.just([b"A=1"]), "cwd": st.just(b"/"), "pty": st.just({"rows": 3}),
        "op": st.sampled_from(["stat", "list", "read"]), "path": st.sampled_from([b"/etc", b"/etc/passwd", b"/a\0"]),
        "data": st.sampled_from([b"", b"x", b"x" * 200_000]), "fd": st.integers(0, 3), "n": st.integers(0, 2**20),
        "sig": st.integers(0, 70), "rows": st.integers(0, 70_000), "timeout_ms": st.integers(0, 5),
    },
)  # fmt: skip


@pytest.mark.parametrize("framed", [False, True])
@settings(max_examples=25)
@given(requests=st.lists(HARMLESS, max_size=8), tail=st.binary(max_size=8))
def test_the_sanitizers_find_nothing_in_the_guest(
    sanitized: Path, framed: bool, requests: list[Any], tail: bytes
) -> None:
    with launch(sanitized, walls=False, framed=framed) as place:
        assert place.setup(walls=False)["t"] == "ready"
        lines = []
        try:
            for request in requests:
                line, theirs = line_pair()
                place.stream.send(request, () if framed else (theirs,))
                os.close(theirs)
                lines.append(line)
                if not framed:
                    line.send(request)
            place.stream.send_raw(tail)
        except OSError:
            pass  # it has closed already
        place.stream.close()
        assert place.process.wait(WAIT) in (0, 1)
