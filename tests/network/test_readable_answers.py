"""What a host with a secret answers is passed on only in a form in which its value can be found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.network.lab import PLACEHOLDER, VALUE, Lab, secret

MakeLab = Callable[..., Lab]
API = "api.example.com"
HALF = VALUE[:10].encode()
PARTS = {
    "partial content": (206, [("Content-Range", "bytes 0-9/33")]),
    "a delta": (226, [("IM", "range"), ("Content-Range", "bytes 0-9/33")]),
    "a delta that does not say so": (226, []),
    "a range by a server that says 200": (200, [("Content-Range", "bytes 0-9/33")]),
    "several ranges, by an old name": (200, [("Content-Type", "multipart/x-byteranges; boundary=x")]),
    "several ranges": (200, [("Content-Type", "multipart/byteranges; boundary=x")]),
}


@pytest.mark.parametrize("what", PARTS)
def test_a_part_of_an_answer_is_refused_whatever_it_is_called(make_lab: MakeLab, what: str) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.origins[API].answer = lambda *_: (*PARTS[what], HALF)
    status, _, body = lab.ask("GET", "/")
    assert status == 403
    assert HALF not in body
    assert b"could split a secret's value in two" in body


def test_an_answer_that_only_says_how_long_the_whole_is_passes(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.origins[API].answer = lambda *_: (416, [("Content-Range", "bytes */33")], b"no such range")
    assert lab.ask("GET", "/")[::2] == (416, b"no such range")


def test_nobody_can_ask_such_a_host_for_a_part_or_for_a_charset(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    asked = {
        "Range": "bytes=0-9",
        "If-Range": "x",
        "A-IM": "range",
        "Accept-Charset": "utf-16",
        "Accept-Encoding": "br",
    }
    lab.ask("GET", "/", asked)
    seen = dict(lab.origins[API].seen[0]["headers"])
    assert seen["accept-encoding"] == "identity"
    assert not {"range", "if-range", "a-im", "accept-charset"} & set(seen)
    lab.host = "other.example.com"
    lab.ask("GET", "/", {"Range": "bytes=0-9"})  # where no secret is at stake, ranges work
    assert dict(lab.origins[lab.host].seen[0]["headers"])["range"] == "bytes=0-9"


@pytest.mark.parametrize("charset", ["utf-16", "UTF-16LE", '"utf-32"', "utf-7", "IBM037", "no-such-charset", "base64"])
def test_an_answer_in_a_charset_that_hides_ascii_is_refused(make_lab: MakeLab, charset: str) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    text = VALUE.encode("utf-16-le")
    lab.origins[API].answer = lambda *_: (200, [("Content-Type", f"text/plain; charset={charset}")], text)
    status, _, body = lab.ask("GET", "/")
    assert status == 403
    assert text not in body
    assert b"in which a secret's value could not be found" in body


@pytest.mark.parametrize(
    "charset", ["utf-8", "UTF8", "us-ascii", "iso-8859-1", "windows-1252", "gb18030", "Shift_JIS", ""]
)
def test_an_answer_in_an_ordinary_charset_passes_without_values(make_lab: MakeLab, charset: str) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.origins[API].answer = lambda *_: (200, [("Content-Type", f"text/plain; charset={charset}")], VALUE.encode())
    assert lab.ask("GET", "/")[::2] == (200, PLACEHOLDER.encode())


@pytest.mark.parametrize("word", [PLACEHOLDER, "sk-live-0123456789"])
def test_a_word_that_must_not_leave_does_not_leave_as_the_method(make_lab: MakeLab, word: str) -> None:
    lab = make_lab({"secrets": {"KEY": secret(value="sk-live-0123456789")}})
    lab.host = "other.example.com"
    answer = lab.say(f"{word} / HTTP/1.1\r\nHost: {lab.host}\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403")
    assert lab.origins[lab.host].bytes_received == 0


def test_basic_credentials_behind_a_tab_are_inspected(make_lab: MakeLab) -> None:
    from base64 import b64encode

    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.host = "other.example.com"
    status, _, _ = lab.ask("GET", "/", {"Authorization": f"Basic\t{b64encode(PLACEHOLDER.encode()).decode()}"})
    assert status == 403
    assert lab.origins[lab.host].seen == []
