"""The framed variant: one byte stream carries everything, as a microVM's serial port does."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.guest.driver import ENV, WAIT, Frame, Place, Stream, launch

CREDIT = 256 << 10


class Wire:
    """A framed guest's commands, told apart by their ids. Gives credit back as it reads, unless told not to."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.generous = True

    def start(self, *argv: str, **keys: Any) -> int:
        number = self.place.new_id()
        self.place.stream.send(
            {"t": "exec", "id": number, "argv": [os.fsencode(a) for a in argv], "env": ENV, "cwd": b"/", **keys}
        )
        return number

    def send(self, number: int, **frame: Any) -> None:
        self.place.stream.send({"id": number, **frame})

    def receive(self) -> Frame:
        frame = self.place.stream.receive()
        if frame["t"] == "out" and frame["data"] and self.generous:
            self.send(frame["id"], t="credit", fd=frame["fd"], n=len(frame["data"]))
        return frame

    def finish(self, number: int) -> tuple[Frame, dict[int, bytes]]:
        """Everything up to the command's last frame."""
        output = {1: b"", 2: b""}
        while True:
            frame = self.receive()
            assert frame["id"] == number, frame
            if frame["t"] == "out":
                output[frame["fd"]] += frame["data"]
            elif frame["t"] in ("exit", "failed", "done"):
                return frame, output


@pytest.fixture
def wire(guest: Path) -> Iterator[Wire]:
    with launch(guest, framed=True) as place:
        ready = place.setup(uid=1000, gid=1000)
        assert place.hello["framed"] is True and ready["t"] == "ready", ready
        yield Wire(place)


def test_output_error_and_status(wire: Wire) -> None:
    last, output = wire.finish(wire.start("sh", "-c", "echo out; echo err >&2; exit 4"))
    assert (last["code"], output) == (4, {1: b"out\n", 2: b"err\n"})


def test_input_and_its_end(wire: Wire) -> None:
    number = wire.start("sha256sum")
    data = os.urandom(CREDIT)
    left, credit = [data] * 8, CREDIT
    while left:
        if credit >= len(data):
            wire.send(number, t="in", data=left.pop())
            credit -= len(data)
            continue
        frame = wire.receive()
        if frame["t"] == "credit":
            assert frame["fd"] == 0
            credit += frame["n"]
    wire.send(number, t="in", data=b"")
    import hashlib

    frame = wire.receive()
    output = b""
    while frame["t"] != "exit":
        if frame["t"] == "out":
            output += frame["data"]
        frame = wire.receive()
    assert output.split()[0].decode() == hashlib.sha256(data * 8).hexdigest()


def test_much_output_waits_for_credit_and_none_is_lost(wire: Wire) -> None:
    wire.generous = False
    number = wire.start("head", "-c", "3000000", "/dev/zero")
    got = 0
    while got < CREDIT:
        frame = wire.receive()
        if frame["t"] == "out":
            got += len(frame["data"])
    assert got == CREDIT  # and not a byte more before it is given
    wire.place.stream.send({"t": "file", "id": 99, "op": "stat", "path": b"/"})
    assert wire.receive()["t"] == "done"
    wire.send(number, t="credit", fd=1, n=CREDIT)
    wire.generous = True
    last, output = wire.finish(number)
    assert (last["code"], got + len(output[1])) == (0, 3_000_000)


def test_several_commands_share_the_stream(wire: Wire) -> None:
    numbers = {wire.start("sh", "-c", f"echo {n}; exit {n}"): n for n in range(50)}
    exits: dict[int, int] = {}
    output = dict.fromkeys(numbers, b"")
    while len(exits) < len(numbers):
        frame = wire.receive()
        if frame["t"] == "exit":
            exits[frame["id"]] = frame["code"]
        elif frame["t"] == "out":
            output[frame["id"]] += frame["data"]
    assert exits == numbers
    assert {number: int(text) for number, text in output.items()} == numbers


def test_the_exit_does_not_wait_for_what_stays_in_the_background(wire: Wire) -> None:
    last, output = wire.finish(wire.start("sh", "-c", "sleep 1000 & echo here"))
    assert (last["code"], output[1]) == (0, b"here\n")


def test_a_terminal(wire: Wire) -> None:
    number = wire.start("sh", "-c", "stty size; read line; echo got $line; cat", pty={"rows": 20, "cols": 30})
    output = b""
    while b"20 30" not in output:
        frame = wire.receive()
        output += frame.get("data", b"")
    wire.send(number, t="in", data=b"word\n")
    while b"got word" not in output:
        output += wire.receive().get("data", b"")
    wire.send(number, t="in", data=b"")
    while (frame := wire.receive())["t"] != "exit":
        pass
    assert frame["code"] == 0


def test_signal_and_cancel(wire: Wire) -> None:
    number = wire.start("sleep", "1000")
    assert wire.receive()["t"] == "started"
    wire.send(number, t="signal", sig=int(signal.SIGINT))
    assert wire.finish(number)[0]["signal"] == signal.SIGINT
    number = wire.start("sh", "-c", "sleep 1000 & sleep 1000")
    assert wire.receive()["t"] == "started"
    wire.send(number, t="cancel")
    assert wire.finish(number)[0]["signal"] == signal.SIGKILL


def test_a_failure_and_a_timeout(wire: Wire) -> None:
    assert wire.finish(wire.start("/nowhere"))[0]["errno"] == errno.ENOENT
    assert wire.finish(wire.start("sleep", "1000", timeout_ms=50))[0]["timed_out"] is True


def test_files(wire: Wire) -> None:
    for number, (op, keys) in enumerate(
        [
            ("write", {"path": b"/tmp/big", "data": b"x" * (1 << 20)}),
            ("read", {"path": b"/tmp/big"}),
            ("list", {"path": b"/tmp"}),
        ]
    ):
        wire.place.stream.send({"t": "file", "id": 1000 + number, "op": op, **keys})
        answer = wire.receive()
        assert (answer["t"], answer["id"]) == ("done", 1000 + number)
        if op == "read":
            assert answer["data"] == b"x" * (1 << 20)
    wire.place.stream.send({"t": "file", "id": 5, "op": "open", "path": b"/tmp/big"})
    assert wire.receive()["errno"] == errno.EXDEV


@pytest.mark.parametrize(("path", "expected"), [(b"/dev/zero", errno.EINVAL), (b"/tmp", errno.EISDIR)])
@pytest.mark.parametrize("op", ["read", "write"])
def test_only_a_regular_file_has_content(wire: Wire, op: str, path: bytes, expected: int) -> None:
    wire.place.stream.send({"t": "file", "id": 5, "op": op, "path": path, "data": b""})
    assert wire.receive()["errno"] == expected


def test_a_connection_inwards_is_carried_in_both_directions(wire: Wire) -> None:
    code = """if 1:
        import socket
        listener = socket.create_server(("127.0.0.1", 8080))
        print("listening", flush=True)
        connection, _ = listener.accept()
        data = b""
        while piece := connection.recv(65536):
            data += piece
        connection.sendall(data[::-1])
    """
    server = wire.start("/usr/bin/python3", "-c", code)
    while wire.receive()["t"] != "out":
        pass
    wire.place.stream.send({"t": "dial", "id": 500, "family": 4, "address": "127.0.0.1", "port": 8080})
    wire.send(500, t="in", data=b"abc")  # before it is known that somebody listens
    assert wire.receive() == {"t": "done", "id": 500}
    wire.send(500, t="in", data=b"def")
    wire.send(500, t="in", data=b"")
    heard, ended = b"", False
    while not ended:
        frame = wire.receive()
        if frame["id"] == 500:
            heard += frame.get("data", b"")
            ended = frame["t"] == "ended"
    assert heard == b"fedcba"
    wire.send(server, t="cancel")


def test_a_connection_nobody_answers_is_refused(wire: Wire) -> None:
    wire.place.stream.send({"t": "dial", "id": 1, "family": 4, "address": "127.0.0.1", "port": 9})
    assert wire.receive() == {"t": "failed", "id": 1, "step": "dial", "errno": errno.ECONNREFUSED}
    wire.place.stream.send({"t": "dial", "id": 1, "family": 4, "address": "nowhere", "port": 9})
    assert wire.receive()["errno"] == errno.EINVAL


def test_a_cancelled_connection_ends_at_once_for_the_tenant(wire: Wire) -> None:
    listen = "import socket; s = socket.create_server(('127.0.0.1', 8081)); print(1, flush=True)"
    server = wire.start("/usr/bin/python3", "-c", f"{listen}; print(s.accept()[0].recv(9))")
    while wire.receive()["t"] != "out":
        pass
    wire.place.stream.send({"t": "dial", "id": 500, "family": 4, "address": "127.0.0.1", "port": 8081})
    assert wire.receive()["t"] == "done"
    wire.send(500, t="cancel")
    assert wire.receive() == {"t": "ended", "id": 500}
    assert wire.finish(server)[1][1] == b"b''\n"


def test_output_nobody_wants_any_more_is_a_broken_pipe_for_the_command(wire: Wire) -> None:
    number = wire.start("yes")
    while wire.receive()["t"] != "out":
        pass
    wire.send(number, t="closed", fd=1)
    assert wire.finish(number)[0]["signal"] == signal.SIGPIPE


def test_a_directory_cannot_be_served_from_the_other_side(guest: Path) -> None:
    with launch(guest, framed=True) as place:
        mount = {"kind": "fuse", "path": b"/room", "device": b"/dev/null", "name": "fuse:0"}
        answer = place.setup(uid=1000, gid=1000, mounts=[mount])
        assert (answer["t"], answer["errno"]) == ("failed", errno.EOPNOTSUPP)


def test_input_beyond_its_credit_ends_the_command(wire: Wire) -> None:
    number = wire.start("sleep", "1000")
    wire.send(number, t="in", data=b"x" * CREDIT)
    wire.send(number, t="in", data=b"x" * CREDIT)
    assert wire.finish(number)[0]["signal"] == signal.SIGKILL


def test_input_nobody_reads_does_not_stall_the_host(wire: Wire) -> None:
    number = wire.start("sh", "-c", "exec <&-; echo closed; sleep 1000")
    while wire.receive()["t"] != "out":
        pass
    wire.send(number, t="in", data=b"x" * CREDIT)
    assert wire.receive() == {"t": "credit", "id": number, "fd": 0, "n": CREDIT}
    assert wire.receive() == {"t": "closed", "id": number, "fd": 0}
    wire.send(number, t="in", data=b"x")  # what was under way is swallowed
    assert wire.receive() == {"t": "credit", "id": number, "fd": 0, "n": 1}
    wire.send(number, t="cancel")


def test_a_stream_other_than_a_unix_socket_is_framed_automatically(guest: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    ours.settimeout(WAIT)
    control = theirs.fileno()
    process = subprocess.Popen(
        ["bash", "-c", f'exec 3<&{control} {control}<&-; exec "$@"', "sh", str(guest)], pass_fds=(control,)
    )
    theirs.close()
    with Place(process, Stream(ours)) as place:
        assert place.setup(walls=False)["t"] == "ready"
        wire = Wire(place)
        assert wire.finish(wire.start("echo", "hi"))[1][1] == b"hi\n"
        assert place.hello["framed"] is True
