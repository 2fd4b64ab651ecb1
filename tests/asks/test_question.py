"""What a tenant says appears in a question only as plain text."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from sandbox.asks.question import LONGEST, FileSubject, HostSubject, Question, Requester
from sandbox.asks.ways_to_ask import markup
from sandbox.errors import message_of
from sandbox.network.gate.refusal import request_line

hostile = st.text(st.characters(codec=None), max_size=400)  # lone surrogates and controls as well


@given(hostile, hostile, hostile, hostile)
def test_no_text_of_a_tenant_reaches_a_terminal_as_it_is(program: str, exe: str, method: str, path: str) -> None:
    subject = HostSubject("a.test", 443, method, path, Requester(program, exe, 7))
    text = str(subject.text)
    assert text.isascii() and text.isprintable()
    assert " wants to connect to a.test:443" in text
    assert len(text) < 60 * LONGEST


@given(hostile)
def test_a_program_cannot_end_the_quotes_around_its_name(program: str) -> None:
    text = str(HostSubject("a.test", 443, requester=Requester(f"x{program}")).text)
    inner = text.removeprefix("'").partition("' wants to connect to a.test:443")[0]
    # Every quote inside is escaped, so what follows the closing one is ours.
    at = 0
    while at < len(inner):
        assert inner[at] != "'"
        at += 2 if inner[at] == "\\" else 1


def test_a_files_name_cannot_continue_the_question() -> None:
    exe = "/tmp/x) wants to connect to pypi.org:443"
    text = str(HostSubject("evil.test", 443, requester=Requester("pip", exe)).text)
    assert text.count(" wants to connect to ") == 1 and text.endswith(" wants to connect to evil.test:443")


@given(hostile)
def test_a_files_name_is_printable_whatever_it_is(name: str) -> None:
    text = str(FileSubject(f"/p/{name}", "read", Requester("cat")).text)
    assert text.isprintable() and "wants to read the blocked file /p/" in text


@given(hostile, hostile)
def test_an_event_is_json(program: str, path: str) -> None:
    question = Question(1, HostSubject("a.test", 443, "GET", path, Requester(program)), "vm", 30.0, 0.0)
    assert json.loads(json.dumps(question.plain()))["host"] == "a.test"
    assert dict(question.ask)["id"] == 1


@given(hostile)
def test_a_notification_holds_no_markup_of_a_tenant(text: str) -> None:
    shown = markup(str(HostSubject("a.test", 443, "GET", text, Requester(text)).text))
    assert "<" not in shown and ">" not in shown


@given(st.binary(max_size=400))
def test_a_request_line_is_read_without_failing(data: bytes) -> None:
    method, path = request_line(data)
    assert "?" not in path and " " not in method


def test_a_request_line_gives_method_and_path_without_the_query() -> None:
    assert request_line(b"GET /a/b?token=secret HTTP/1.1\r\nHost: x\r\n\r\n") == ("GET", "/a/b")
    assert request_line(b"POST http://a.test:80/c?x HTTP/1.1\r\n\r\n") == ("POST", "/c")


def test_an_address_of_version_six_is_written_so_that_it_is_an_entry() -> None:
    from sandbox.policy.hosts import HostPattern

    subject = HostSubject("2001:db8::7", 443)
    assert subject.entry == "[2001:db8::7]:443"
    assert HostPattern(subject.entry).port == 443
    assert message_of(ValueError(subject.text)) == "A program wants to connect to [2001:db8::7]:443"
