"""When a question may be shown on the terminal, and which keys answer it: on a pseudo-terminal, without a sandbox."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.asks.question import HostSubject
from sandbox.asks.verdict import Verdict
from sandbox.cli.ask_terminal import AlternateScreen, TerminalWay
from tests.asks.tables import Table


class Relay:
    """In StdioRelay's place; `unread` is output that it has not copied yet."""

    typing = False

    def __init__(self) -> None:
        self.between: Callable[[], object] = lambda: None
        self.tap: Callable[[bytes], object] = lambda _: None
        self.unread = b""

    def when(self, fd: int, call: Callable[[], object]) -> None:
        """Nobody waits here."""

    def catch_up(self) -> None:
        self.tap(self.unread)
        self.unread = b""


class Process:
    """A command that has no terminal of its own and does not end."""

    terminal = None

    def __init__(self) -> None:
        self._ends = os.pipe()

    def fileno(self) -> int:
        return self._ends[0]

    def close(self) -> None:
        for fd in self._ends:
            os.close(fd)


class Desk:
    def __init__(self) -> None:
        self.table = Table(there=False)
        self.relay = Relay()
        self.process = Process()
        self.master, self._slave = os.openpty()
        given: Any = self.relay, self.process
        self.way = TerminalWay(self.table.asks, (self._slave, self._slave), *given)

    def ask(self) -> list[Verdict]:
        verdicts: list[Verdict] = []
        self.table.asks.ask(HostSubject("a.test", 443), 30.0, verdicts.append)
        return verdicts

    def sees(self, text: str) -> None:
        seen = ""
        while text not in seen:
            seen += os.read(self.master, 4096).decode()

    def close(self) -> None:
        self.way.close()
        self.process.close()
        os.close(self._slave)
        os.close(self.master)


@pytest.fixture
def desk() -> Iterator[Desk]:
    one = Desk()
    yield one
    one.close()


def test_keys_that_were_typed_before_the_question_was_shown_answer_nothing(desk: Desk) -> None:
    os.write(desk.master, b"always\n")
    verdicts = desk.ask()
    turn = threading.Thread(target=desk.relay.between)
    turn.start()
    desk.sees("[d]eny? ")
    os.write(desk.master, b"d\r")
    turn.join(20)
    assert [bool(one) for one in verdicts] == [False] and desk.table.kept == []


def test_output_that_is_not_copied_yet_can_show_that_the_screen_is_somebodys(desk: Desk) -> None:
    verdicts = desk.ask()
    desk.relay.unread = b"\x1b[?1049h"
    desk.relay.between()
    assert verdicts[0].why.startswith("nobody was there")


def test_somebody_in_the_middle_of_a_line_is_not_interrupted(desk: Desk) -> None:
    desk.relay.typing = True
    assert desk.ask()[0].why.startswith("nobody was there")


def test_a_question_that_was_answered_before_it_was_shown_is_not_shown(desk: Desk) -> None:
    verdicts = desk.ask()
    desk.table.answer("once")
    desk.relay.between()
    assert verdicts[0]
    os.set_blocking(desk.master, False)
    with pytest.raises(BlockingIOError):
        os.read(desk.master, 1)


def test_a_question_ends_when_somebody_else_answers(desk: Desk) -> None:
    verdicts = desk.ask()
    turn = threading.Thread(target=desk.relay.between)
    turn.start()
    desk.sees("[d]eny? ")
    os.write(desk.master, b"\x04")  # in raw mode a key like any other
    desk.table.answer("deny")
    turn.join(20)
    assert not verdicts[0]


def shown(desk: Desk) -> str:
    """What the terminal gets for a question."""
    desk.ask()
    turn = threading.Thread(target=desk.relay.between)
    turn.start()
    seen = ""
    while "[d]eny? " not in seen:
        seen += os.read(desk.master, 4096).decode()
    os.write(desk.master, b"d\r")
    turn.join(20)
    return seen.partition("sandbox: ")[0]


@pytest.mark.parametrize(
    "output",
    [b"\x1b]11;#ffffff\x07\x1b]10;#ffffff\x07", b"\x1b]4;7;#000000\x1b\\", b"\x1b\0]11;#fff\x07", b"\x1b]P7000000"],
)
def test_a_command_cannot_make_a_question_invisible(desk: Desk, output: bytes) -> None:
    desk.relay.unread = output
    before = shown(desk)
    assert all(f"\x1b]{one}\x1b\\" in before for one in ("104", "110", "111", "R"))


def test_a_question_is_drawn_whole_and_leaves_the_persons_colours_alone(desk: Desk) -> None:
    desk.relay.unread = b"\x1b[?7l\x1b[?2026h\x1b[31m"
    before = shown(desk)
    assert "\x1b[?7h" in before and "\x1b[?2026l" in before and "\x1b]" not in before


PIECES = [b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25;1049h", b"\x1b[?47l", b"text", b"\x1b[2J"]


@given(st.lists(st.sampled_from(PIECES)), st.data())
def test_the_alternate_screen_is_noticed_however_output_is_cut(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    switches = [one for one in pieces if one.endswith((b"49h", b"49l", b"47l"))]
    screen, at = AlternateScreen(), 0
    while at < len(whole):
        size = data.draw(st.integers(1, 12))
        screen.see(whole[at : at + size])
        at += size
    assert screen.up == (bool(switches) and switches[-1].endswith(b"h"))
