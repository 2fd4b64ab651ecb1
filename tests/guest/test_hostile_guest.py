"""A framed guest that lies. Whoever waits for it is told GuestError; nothing hangs, and nothing grows."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import CommandError, GuestError, SandboxClosed
from sandbox.guest import carried, frames
from sandbox.guest.framed import FramedGuest
from sandbox.guest.guest import Guest
from sandbox.guest.process import Process
from tests.guest.driver import WAIT, Closed, Stream
from tests.patience import until

CREDIT = 2**18
EXIT = {"t": "exit", "code": 0, "timed_out": False, "wall_us": 1, "user_us": 1, "sys_us": 1, "maxrss_kb": 1}
STARTED = {"t": "started", "pid": 7, "fds": 0}


class Liar:
    """The guest's side of a framed connection, and ours."""

    def __init__(self, listening: tuple[str, ...] = ()) -> None:
        self._listening = listening
        theirs, stream = socket.socketpair()
        theirs.settimeout(WAIT)
        self.stream = Stream(theirs)
        self.guest = FramedGuest(stream)
        self.say(t="hello", v=2, arch="x86_64", framed=True)
        self.guest.greet()
        answer = threading.Thread(target=self._get_ready)
        answer.start()
        self.guest.set_up({"walls": False, "carried": bool(listening)})
        answer.join()

    def _get_ready(self) -> None:
        assert self.stream.receive()["t"] == "setup"
        self.say(t="ready", sockets=list(self._listening), have={})

    def say(self, **frame: Any) -> None:
        self.stream.send(frame)

    def start(self, *, pty: bool = False) -> tuple[Process, int]:
        """A command that the guest has been asked for, and its id."""
        ends = [] if pty else [os.pipe() for _ in range(3)]
        tenants = [ends[0][0], ends[1][1], ends[2][1]] if ends else []
        request: dict[str, object] = {"argv": [b"x"], "cwd": b"/"}
        process = self.guest.start(request | ({"pty": {}} if pty else {}), "x", tenants)
        for fd in tenants:
            os.close(fd)
        if ends:
            process.stdin, process.stdout, process.stderr = ends[0][1], ends[1][0], ends[2][0]
        return process, int(self.stream.receive()["id"])

    def close(self) -> None:
        self.stream.close()
        self.guest.close()
        assert not self.guest._thread.is_alive()


@pytest.fixture
def liar() -> Iterator[Liar]:
    made = Liar()
    yield made
    made.close()


def test_an_honest_one_is_believed(liar: Liar) -> None:
    process, number = liar.start()
    liar.say(id=number, **STARTED)
    liar.say(id=number, t="out", fd=1, data=b"hello")
    liar.say(id=number, t="out", fd=1, data=b"")
    liar.say(id=number, **EXIT)
    with process:
        assert process.wait(WAIT).stdout == "hello"


def flood(liar: Liar, number: int) -> None:
    """More output than there was credit for, and than nobody has read yet."""
    try:
        for _ in range(20):
            liar.say(id=number, t="out", fd=1, data=b"x" * 2**16)
    except OSError:
        pass  # the connection has ended already


LIES: dict[str, Callable[[Liar, int], None]] = {
    "a frame of 4 GiB": lambda liar, _: liar.stream.send_raw(b"\xff\xff\xff\xff"),
    "a frame of nothing": lambda liar, _: liar.stream.send_raw(b"\0\0\0\0"),
    "a frame that is no map": lambda liar, _: liar.stream.send_raw(struct.pack("<I", 1) + b"\x80"),
    "a frame without a type": lambda liar, _: liar.say(id=1),
    "a command nobody asked for": lambda liar, number: liar.say(id=number + 1, t="started", pid=1),
    "an id that is no number": lambda liar, _: liar.say(id="1", t="started", pid=1),
    "an id that is true": lambda liar, _: liar.say(id=True, t="started", pid=1),
    "output without credit": flood,
    "output of no stream": lambda liar, number: liar.say(id=number, t="out", fd=0, data=b"x"),
    "output of a stream by another name": lambda liar, number: liar.say(id=number, t="out", fd=True, data=b"x"),
    "output that is text": lambda liar, number: liar.say(id=number, t="out", fd=1, data="x"),
    "credit that was not spent": lambda liar, number: liar.say(id=number, t="credit", fd=0, n=1),
    "credit for nothing": lambda liar, number: liar.say(id=number, t="credit", fd=0, n=0),
    "credit below nothing": lambda liar, number: liar.say(id=number, t="credit", fd=0, n=-5),
    "credit without end": lambda liar, number: liar.say(id=number, t="credit", fd=0, n=2**63),
    "credit for output": lambda liar, number: liar.say(id=number, t="credit", fd=1, n=1),
    "a second start": lambda liar, number: liar.say(id=number, **STARTED),
    "an answer that is another request's": lambda liar, number: liar.say(id=number, t="done"),
    "an exit that says nothing": lambda liar, number: liar.say(id=number, t="exit"),
    "a status that no program has": lambda liar, number: liar.say(id=number, **{**EXIT, "code": 2**32}),
    "a status below nothing": lambda liar, number: liar.say(id=number, **{**EXIT, "code": -1}),
    "a signal that there is not": lambda liar, number: liar.say(id=number, **EXIT, signal=2**63),
    "a time below nothing": lambda liar, number: liar.say(id=number, **{**EXIT, "wall_us": -1}),
    "that it is ready, again, for which our side opens descriptors": lambda liar, _: liar.say(t="ready", sockets=[]),
    "a datagram of a socket that is a list": lambda liar, _: liar.say(t="datagram", socket=[], peer=b"", data=b""),
    "a word that does not exist": lambda liar, number: liar.say(id=number, t="hi"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_caller_that_waits_for_a_lying_guest_gets_an_error(liar: Liar, lie: str) -> None:
    process, number = liar.start()
    liar.say(id=number, **STARTED)
    process.wait_started()
    LIES[lie](liar, number)
    with process, pytest.raises(GuestError):
        process.wait(WAIT)


def connects(liar: Liar, number: int) -> None:
    told = {"address": "127.0.0.1", "port": 80, "from": "127.0.0.1", "from_port": 5}
    liar.say(t="accepted", id=carried.FIRST_ID + number, socket="tcp", **told)


def test_connections_that_are_never_ended_take_no_more_than_their_share_of_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gate closes its end of each at once. When the guest has ended one, there is room again."""
    monkeypatch.setattr(carried, "MOST_CONNECTIONS", 20)
    liar = Liar(("tcp",))
    gate = carried.CarriedListener(liar.guest.take_sockets()["tcp"])
    became = []
    for number in range(30):
        connects(liar, number)
        became.append(until(lambda: _handed_out(gate) or _refused(liar)))
    assert became == ["handed out"] * 20 + ["refused"] * 10
    liar.say(t="ended", id=carried.FIRST_ID)
    connects(liar, 30)
    assert until(lambda: _handed_out(gate) or _refused(liar)) == "handed out"
    gate.close()
    liar.close()


def _handed_out(gate: carried.CarriedListener) -> str:
    try:
        gate.accept()[0].close()
    except BlockingIOError:
        return ""
    return "handed out"


def _refused(liar: Liar) -> str:
    """Whether the guest is told to reset a connection. What it is told of those that were handed out is passed over."""
    while select.select([liar.stream.socket], [], [], 0)[0]:
        if liar.stream.receive()["t"] == "cancel":
            return "refused"
    return ""


def test_news_of_a_command_that_nobody_reads_ends_the_connection_before_it_fills_memory(liar: Liar) -> None:
    process, number = liar.start()
    liar.say(id=number, **STARTED)
    with process, pytest.raises(OSError):
        for _ in range(1_000_000):
            liar.say(id=number, t="stopped")


@pytest.mark.parametrize("word", ["out", "credit", "exit", "stopped", "closed", "done"])
def test_nothing_is_said_of_a_command_before_it_has_started(liar: Liar, word: str) -> None:
    process, number = liar.start()
    liar.say(id=number, t=word, fd=1, data=b"x", n=1)
    with process, pytest.raises(GuestError):
        process.wait(WAIT)


def test_output_after_its_end_is_a_lie(liar: Liar) -> None:
    process, number = liar.start()
    liar.say(id=number, **STARTED)
    liar.say(id=number, t="out", fd=1, data=b"")
    liar.say(id=number, t="out", fd=1, data=b"x")
    with process, pytest.raises(GuestError):
        process.wait(WAIT)


def test_a_command_that_has_ended_is_not_spoken_of_again(liar: Liar) -> None:
    process, number = liar.start()
    other, _ = liar.start()
    liar.say(id=number, **STARTED)
    liar.say(id=number, **EXIT)
    with process:
        process.wait(WAIT)
    liar.say(id=number, **EXIT)
    with other, pytest.raises(GuestError):
        other.wait(WAIT)


def test_a_lie_about_one_command_is_an_error_for_all_who_wait(liar: Liar) -> None:
    first, number = liar.start()
    second, _ = liar.start(pty=True)
    reports: list[BaseException] = []

    def listen() -> None:
        try:
            list(liar.guest.reports())
        except GuestError as problem:
            reports.append(problem)

    listening = threading.Thread(target=listen)
    listening.start()
    liar.say(id=number, t="out", fd=1, data=b"x")
    with first, second:
        for process in (first, second):
            with pytest.raises(GuestError):
                process.wait(WAIT)
    listening.join(WAIT)
    assert len(reports) == 1


@pytest.mark.parametrize("answer", [{"t": "exit"}, {"t": "out", "fd": 1, "data": b"x"}, {"t": "failed"}])
def test_a_file_operation_has_one_kind_of_answer(liar: Liar, answer: dict[str, Any]) -> None:
    def lie() -> None:
        liar.say(id=liar.stream.receive()["id"], **answer)

    lying = threading.Thread(target=lie)
    lying.start()
    with pytest.raises(GuestError):
        liar.guest.file("stat", b"/")
    lying.join()


NONSENSE: list[tuple[str, dict[str, Any]]] = [
    ("stat", {"t": "failed", "errno": 2**40}),
    ("stat", {"t": "failed", "errno": -1}),
    ("stat", {"t": "done"}),
    ("stat", {"t": "done", "mode": 2**32, "size": 1, "mtime_ns": 1}),
    ("stat", {"t": "done", "mode": "x", "size": 1, "mtime_ns": 1}),
    ("list", {"t": "done"}),
    ("list", {"t": "done", "entries": [[b"a", 1, 1]]}),
    ("list", {"t": "done", "entries": [["text", 1, 1, 1]]}),
    ("list", {"t": "done", "entries": [[b"../up", 1, 1, 1]]}),
    ("list", {"t": "done", "entries": [[b"a", -1, 1, 1]]}),
    ("readlink", {"t": "done", "target": 5}),
    ("read", {"t": "done", "data": "text"}),
    ("read", {"t": "done", "data": b"more than was asked for"}),
    ("open", {"t": "done"}),
    ("attributes", {"t": "done"}),
    ("attributes", {"t": "done", "attributes": [[b"a", 1]]}),
    ("attributes", {"t": "done", "attributes": [[b"a", [[b"of a file", b"below"]]]]}),
]


@pytest.mark.parametrize(("operation", "answer"), NONSENSE)
def test_an_answer_is_used_only_if_it_makes_sense(liar: Liar, operation: str, answer: dict[str, Any]) -> None:
    def lie() -> None:
        liar.say(id=liar.stream.receive()["id"], **answer)

    lying = threading.Thread(target=lie)
    lying.start()
    with pytest.raises(GuestError):
        liar.guest.file(operation, b"/", offset=0, size=4)
    lying.join()


def test_a_connection_that_comes_without_a_socket_is_refused() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        guest = Guest(ours)

        def lie() -> None:
            _, fds = frames.receive(theirs)
            with socket.socket(fileno=fds[0]) as line:
                frames.send(line, {"t": "done"})

        lying = threading.Thread(target=lie)
        lying.start()
        with pytest.raises(GuestError):
            guest.dial("127.0.0.1", 80)
        lying.join()
        guest.close()


def test_sockets_that_cannot_cross_are_not_believed() -> None:
    theirs, stream = socket.socketpair()
    guest = FramedGuest(stream)
    talk = Stream(theirs)
    talk.send({"t": "hello", "v": 2})
    guest.greet()
    talk.send({"t": "ready", "sockets": ["tcp4"], "have": {}, "fds": 1})
    with pytest.raises((GuestError, SandboxClosed)):  # the latter where the stream was ended before it was asked
        guest.set_up({"walls": False})
    talk.close()
    guest.close()


def test_reports_that_nobody_reads_end_the_connection_before_they_fill_memory(liar: Liar) -> None:
    with pytest.raises(OSError):
        for _ in range(10_000):
            liar.say(t="tripped", path=b"x" * 2**16)


def test_a_command_that_reads_nothing_is_not_sent_more_than_its_credit(liar: Liar) -> None:
    process, number = liar.start()
    liar.say(id=number, **STARTED)

    def give() -> None:
        try:
            process.write(b"x" * 2**26)
        except OSError:
            pass

    giving = threading.Thread(target=give)
    giving.start()
    received = 0
    while received < CREDIT:
        received += len(liar.stream.receive()["data"])
    other, _ = liar.start()  # which is the next frame: it has given no credit back, so no more input came
    other.close()
    liar.close()
    giving.join(WAIT)
    assert not giving.is_alive()
    with process, pytest.raises(SandboxClosed):
        process.wait(WAIT)


TEXT = st.sampled_from(["started", "out", "in", "credit", "closed", "exit", "failed", "done", "ended", "stopped", "hi"])
VALUES = st.one_of(st.integers(-(2**40), 2**40), st.binary(max_size=64), st.text(max_size=8), st.booleans(), st.none())
FRAMES = st.fixed_dictionaries(
    {"t": TEXT},
    optional={
        "id": st.one_of(st.integers(0, 4), VALUES),
        "fd": st.one_of(st.integers(0, 3), VALUES),
        "n": st.one_of(st.integers(0, 2**18), VALUES),
        "data": st.one_of(st.binary(max_size=2**12), VALUES),
        "pid": VALUES,
        "code": VALUES,
        "errno": VALUES,
        "fds": VALUES,
    },
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.lists(FRAMES, max_size=30).map(lambda all: b"".join(map(_frame, all))), st.binary(max_size=200)))
def test_whatever_a_guest_sends_nothing_hangs_and_only_our_errors_come(data: bytes) -> None:
    liar = Liar()
    before = threading.active_count()
    process, _ = liar.start()
    terminal, _ = liar.start(pty=True)
    liar.stream.send_raw(data)
    try:
        liar.stream.socket.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it has already heard enough
    for one in (process, terminal):
        with one:
            try:
                one.wait(WAIT)
            except (GuestError, SandboxClosed, CommandError):
                pass  # the guest may well say that it never ran
    liar.close()
    assert threading.active_count() <= before


def _frame(message: dict[str, Any]) -> bytes:
    body = cbor2.dumps(message)
    return struct.pack("<I", len(body)) + body


def test_a_connection_that_ends_in_the_middle_of_a_frame_is_closed(liar: Liar) -> None:
    process, _ = liar.start()
    liar.stream.send_raw(b"\x10\0\0\0abc")
    liar.stream.close()
    with process, pytest.raises(SandboxClosed):
        process.wait(WAIT)
    with pytest.raises((SandboxClosed, Closed)):
        liar.guest.file("stat", b"/")


def test_a_second_start_on_a_commands_own_line_is_a_lie() -> None:
    ours, theirs = socket.socketpair()
    with theirs, Process(ours, "x") as process:
        for _ in range(2):
            frames.send(theirs, {"t": "started", "pid": 7})
        process.wait_started()
        with pytest.raises(GuestError):
            process.wait(WAIT)


def test_what_a_guest_says_of_a_failed_step_is_short_and_escaped() -> None:
    ours, theirs = socket.socketpair()
    with theirs, Process(ours, "x") as process:
        frames.send(theirs, {"t": "failed", "errno": 5, "step": "\x1b[2J" + "x" * 5000})
        with pytest.raises(CommandError) as told:
            process.wait(WAIT)
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 200


@pytest.mark.parametrize(
    "lie",
    [
        {"sockets": [7], "have": {}},
        {"sockets": [["null"]], "have": {}},
        {"sockets": ["null"], "have": [1]},
        {"sockets": "n", "have": {}},
    ],
    ids=str,
)
def test_a_guest_that_reports_an_invalid_name_is_refused(lie: dict[str, object]) -> None:
    ours, theirs = socket.socketpair()
    guest = Guest(ours)
    with theirs:
        frames.send(theirs, {"t": "ready", **lie}, [theirs.fileno()])
        with pytest.raises(GuestError):
            guest.wait_ready()
        guest.close()
