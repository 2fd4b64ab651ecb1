"""The record says which secret went where, and which came back: by name, once for each request."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wsproto.events import TextMessage

from sandbox.errors import SandboxError
from sandbox.network.destination import Destination
from sandbox.network.gate.reporting import GateReporter
from tests.network.furnished import Furnished
from tests.network.lab import PLACEHOLDER, VALUE, Lab, secret
from tests.network.room import Heard
from tests.network.test_websocket import Client, echo

MakeLab = Callable[..., Lab]
API = "api.example.com:443"
OUT, IN = (API, "outbound", "KEY"), (API, "inbound", "KEY")
BASIC = base64.b64encode(f"user:{PLACEHOLDER}".encode()).decode()


def silent(*_: Any) -> tuple[int, list[tuple[str, str]], bytes]:
    return 200, [], b"nothing of it"


@pytest.mark.parametrize(
    ("places", "request_", "used"),
    [
        (["header"], ("GET", "/", {"Authorization": f"Bearer {PLACEHOLDER}", "X-Again": PLACEHOLDER}, b""), [OUT]),
        (["header"], ("GET", "/", {"Authorization": f"Basic {BASIC}"}, b""), [OUT]),
        (["query"], ("GET", f"/?key={PLACEHOLDER}", {}, b""), [OUT]),
        (["body"], ("POST", "/", {}, PLACEHOLDER.encode() * 3), [OUT]),
        (["body"], ("POST", "/", {}, b"something else"), []),
        (["header"], ("POST", "/", {}, PLACEHOLDER.encode()), []),  # not asked for in bodies: it stays a placeholder
        (["header"], ("GET", "/", {}, b""), []),
    ],
)
def test_a_secret_that_is_put_into_a_request_is_reported_once(
    make_lab: MakeLab, places: list[str], request_: Any, used: list[Any]
) -> None:
    lab = make_lab({"secrets": {"KEY": secret(**{"in": places})}})
    lab.origins["api.example.com"].answer = silent
    assert lab.ask(*request_)[0] == 200
    lab.wait_until_idle()
    assert lab.used == used


def test_a_value_that_comes_back_is_reported_once_wherever_it_is(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    origin = lab.origins["api.example.com"]
    origin.answer = lambda *_: (200, [("X-Echo", VALUE)], f"{VALUE} and {VALUE}".encode())
    lab.ask("GET", "/")
    lab.wait_until_idle()
    assert lab.used == [IN]
    lab.used.clear()
    origin.answer = lambda *_: (200, [], base64.b64encode(VALUE.encode()))
    lab.ask("GET", "/")
    lab.wait_until_idle()
    assert lab.used == [IN]


def test_a_request_that_is_refused_used_no_secret(make_lab: MakeLab) -> None:
    other = "SANDBOX_PLACEHOLDER_" + "f" * 32
    elsewhere = {"value": "another-value-0123456789", "hosts": ["other.example.com"], "placeholder": other}
    lab = make_lab({"secrets": {"KEY": secret(**{"in": ["header", "body"]}), "OTHER": elsewhere}})
    assert lab.ask("POST", "/", {"Authorization": f"Bearer {PLACEHOLDER}"}, other.encode())[0] == 403
    lab.wait_until_idle()
    assert lab.used == []


def test_a_use_that_cannot_be_recorded_is_refused_before_a_byte_leaves(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SandboxError("cannot write the record: no space left on device")

    lab = make_lab({"secrets": {"KEY": secret()}})
    monkeypatch.setattr(lab, "secret_used", full)
    assert lab.ask("GET", "/", {"Authorization": f"Bearer {PLACEHOLDER}"})[0] == 403
    assert lab.origins["api.example.com"].seen == []


def test_secrets_in_messages_of_a_websocket_are_reported(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret(**{"in": ["body"]}, value="plain-value-0123456789")}})
    lab.origins["api.example.com"].raw = echo
    client = Client(lab)
    client.send(TextMessage(f"my key is {PLACEHOLDER}"))
    assert client.next().data == f"my key is {PLACEHOLDER}"  # the echo, turned back
    assert lab.used == [OUT, IN]


def test_a_flood_is_counted_and_does_not_fill_the_disk() -> None:
    heard = Heard()
    reporter = GateReporter(heard.emit, heard.record)
    for _ in range(20_000):
        reporter.secret_used(Destination("api.test", 443, "dns"), "inbound", "KEY")
    assert 1000 <= len(heard.records) < 2000
    reporter.secret_used(Destination("api.test", 443, "dns"), "outbound", "KEY")
    assert heard.records[-1]["type"] == "secret_token_replacement_outbound"


@pytest.mark.walls
def test_the_record_has_the_secrets_name_and_never_its_value(furnished: Any, tmp_path: Path) -> None:
    key = {"value": VALUE, "hosts": ["api.test:*"]}
    place: Furnished = furnished({"secrets": {"KEY": key}})
    place.watch.record = place.sandbox.record.write
    place.run("curl", "-sS", "-H", f"Authorization: Bearer {place.placeholders['KEY']}", place.url())  # it is echoed
    place.sandbox.close()
    text = (tmp_path / "home" / "audit" / "audit.jsonl").read_text()
    entries = [json.loads(line) for line in text.splitlines()]
    target = f"api.test:{place.origins['api.test'].port}"
    uses = [(one["type"], one["target"], one["metadata"]["tokenIds"]) for one in entries if "secret_" in one["type"]]
    assert uses == [
        ("secret_token_replacement_outbound", target, "KEY"),
        ("secret_sanitization_inbound", target, "KEY"),
    ]
    assert VALUE not in text and place.placeholders["KEY"] not in text
