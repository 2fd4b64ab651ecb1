"""A display that programs inside replaced with one of their own: whatever it answers, the host stays whole."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.desktop import x11
from sandbox.desktop.keys import chords, keysym
from sandbox.desktop.windows import list_windows, shown
from sandbox.desktop.x11 import Display, DisplayLost, DisplayRefused
from sandbox.errors import InvalidArgument

SETUP = (
    struct.pack("<IIIIHHBBBBBBBB4x", 0, 0, 0, 0, 0, 65535, 1, 0, 0, 0, 32, 0, 8, 255)
    + struct.pack("<I16xHH8xIxxBB", 7, 800, 600, 33, 24, 1)
    + struct.pack("<BxHxxxx", 24, 1)
    + struct.pack("<IBBHIII4x", 33, 4, 8, 256, 0xFF0000, 0xFF00, 0xFF)
)
GREETING = struct.pack("<BxHHH", 1, 11, 0, len(SETUP) // 4) + SETUP


def display(answers: bytes) -> Display:
    """A display that says all of `answers` at once, and then nothing."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, suppress(OSError):  # whoever has heard enough hangs up
            theirs.sendall(answers)
            theirs.shutdown(socket.SHUT_WR)
            while theirs.recv(65536):
                pass

    Thread(target=serve, daemon=True).start()
    return Display(ours)


def reply(number: int, extra: bytes = b"", second: int = 0, head: bytes = b"", length: int | None = None) -> bytes:
    units = len(extra) // 4 if length is None else length
    return struct.pack("<BBHI", 1, second, number, units) + head.ljust(24, b"\0") + extra


def test_an_image_of_another_length_than_was_asked_for_is_never_read() -> None:
    bomb = display(GREETING + reply(1, length=2**30))
    with pytest.raises(DisplayLost, match="something else"):
        bomb.image(0, 0, 10, 10)


def test_an_answer_to_another_request_is_ignored() -> None:
    with pytest.raises(DisplayLost, match="something else"):
        display(GREETING + reply(9)).size()


def test_a_refused_earlier_request_does_not_leave_the_two_out_of_step() -> None:
    refused = struct.pack("<BBHI24x", 0, 2, 1, 0)
    shown = display(GREETING + refused + reply(2) + reply(3, head=struct.pack("<8xHH", 800, 600)))
    shown.map_keys(8, [(97, 65)])
    with pytest.raises(DisplayRefused):
        shown.settle()
    assert shown.size() == (800, 600)


def test_events_without_end_do_not_hold_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(x11, "_MOST_EVENTS", 1000)
    with pytest.raises(DisplayLost, match="does not come to an answer"):
        display(GREETING + bytes([34] + [0] * 31) * 2000).size()


def test_silence_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(x11, "PATIENCE", 0.05)
    ours, theirs = socket.socketpair()
    with theirs, pytest.raises(DisplayLost, match="in time"):
        Display(ours)


def test_a_display_that_answers_each_question_late_does_not_hold_the_caller_for_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """256 windows with a title each: ten seconds for every answer would be an hour and a half."""
    listed = struct.pack("<256I", *range(1, 257))
    atom = reply(1, head=struct.pack("<I", 5))
    many = display(GREETING + atom + reply(2, listed, second=32, head=struct.pack("<8xI", 256)))
    monkeypatch.setattr(x11, "WHOLE", 0.0)
    many.begin()
    with pytest.raises(DisplayLost, match="in time"):
        list_windows(many)


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_bytes_in_place_of_a_greeting_are_a_sandbox_error(data: bytes) -> None:
    with pytest.raises(DisplayLost):
        display(data).size()


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_bytes_after_the_greeting_are_a_sandbox_error_or_an_answer(data: bytes) -> None:
    for ask in (Display.size, Display.keyboard, list_windows, lambda one: one.image(0, 0, 2, 2)):
        try:
            ask(display(GREETING + data))
        except (DisplayLost, DisplayRefused):
            pass


@given(st.binary(max_size=200))
def test_a_title_does_nothing_when_it_is_printed(data: bytes) -> None:
    assert shown(data).isprintable()


@given(st.text(max_size=140))
def test_any_text_for_keys_is_read_or_refused(text: str) -> None:
    try:
        assert chords(text)
    except InvalidArgument:
        pass


def test_keys_have_the_names_that_people_and_models_use() -> None:
    assert chords("ctrl+s") == chords("Control_L+s") == chords("CTRL+s")
    assert chords("Return") == chords("enter") == [[0xFF0D]]
    assert chords("ctrl++") == [[0xFFE3, 0x2B]] and chords("+") == [[0x2B]]
    assert len(chords("Down Down Page_Up")) == 3
    assert keysym("é") == 0xE9 and keysym("你") == 0x1004F60
    for wrong in ("", " ", "ctrl+", "+a", "nokey", "x" * 129):
        with pytest.raises(InvalidArgument):
            chords(wrong)
