"""An answer of a token endpoint: whatever may be a token is replaced, and what is harmless stays."""

from __future__ import annotations

import json
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import Denied
from sandbox.network.credentials.token_answer import FORM, rewritten
from sandbox.network.credentials.token_request import TokenRequest, same_path

TOKEN = "sk-ant-oat01-" + "aB3" * 30
OPAQUE = "Zm9vYmFy9f8e7d6c5b4a3210QWERTYuiop"


def answer(body: bytes, kind: str = "application/json", status: int = 200, keep: tuple[str, ...] = ()) -> bytes:
    return rewritten(body, kind, status, list(keep), lambda keys, value: f"<{'.'.join(keys)}>")


def test_tokens_go_and_what_oauth_says_about_them_stays() -> None:
    said = {
        "access_token": TOKEN,
        "refresh_token": OPAQUE,
        "token_type": "Bearer",
        "expires_in": 28800,
        "scope": "a:b c",
    }
    assert json.loads(answer(json.dumps(said).encode())) == said | {
        "access_token": "<access_token>",
        "refresh_token": "<refresh_token>",
    }


def test_a_token_in_a_field_that_nobody_expected_goes_too() -> None:
    said = {
        "raw_key": OPAQUE,
        "nested": {"list": [{"deep": TOKEN}]},
        "short": "ok",
        "expires_at": "2026-11-17T03:00:00Z",
    }
    new = json.loads(answer(json.dumps(said).encode()))
    assert OPAQUE not in str(new) and TOKEN not in str(new)
    assert new["short"] == "ok" and new["expires_at"] == said["expires_at"]


def test_a_string_that_looks_like_nothing_goes_too_when_its_field_is_not_known() -> None:
    said = {"passphrase": "correct horse battery", "nested": {"x": "abcdefgh"}, "list": ["ijklmnop"]}
    new = json.loads(answer(json.dumps(said).encode()))
    assert new == {"passphrase": "<passphrase>", "nested": {"x": "<nested.x>"}, "list": ["<list.0>"]}


def test_a_token_in_a_field_that_is_known_to_be_harmless_goes_by_its_shape() -> None:
    new = answer(json.dumps({"scope": TOKEN, "error_description": f"bad token {OPAQUE}"}).encode())
    assert TOKEN.encode() not in new and OPAQUE.encode() not in new


def test_what_the_entry_keeps_stays_unless_it_is_a_token() -> None:
    said = {"account": {"uuid": "1b4e28ba-2fa1", "email_address": "me@example.org", "odd": TOKEN}}
    new = json.loads(answer(json.dumps(said).encode(), keep=("account.*",)))
    assert new["account"]["email_address"] == "me@example.org"
    assert new["account"]["odd"] == "<account.odd>"


def test_names_that_come_twice_are_one_and_escapes_hide_nothing() -> None:
    new = answer(b'{"access_token": "first-token-12345", "acc\\u0065ss_token": "%s"}' % TOKEN.encode())
    assert new.count(b"access_token") == 2  # the name, and the stand-in's
    assert b"first-token" not in new and TOKEN.encode() not in new
    assert TOKEN.encode() not in answer(b'{"x": "%s"}' % TOKEN.replace("s", "\\u0073").encode())


def test_an_error_reaches_the_tenant_as_it_is() -> None:
    for body in (
        b'{"error": "invalid_grant",  "error_description": "Refresh token has been revoked"}',
        b'{"error": {"type": "invalid_request_error", "message": "no such user here"}, "request_id": "req_011CSabcd"}',
        b"<html><body>Service Unavailable, try later</body></html>",
    ):
        assert answer(body, status=400) == body


def test_a_token_in_an_error_goes() -> None:
    for body in (
        json.dumps({"error": "x", "refresh_token": "anything-at-all"}),
        json.dumps({"message": f"token {OPAQUE} is old"}),
        f"<html>{OPAQUE}</html>",
    ):
        new = answer(body.encode(), status=400)
        assert OPAQUE.encode() not in new and b"anything" not in new


def test_a_form_is_read_too() -> None:
    new = answer(b"access_token=gho_abcdefghijklmnopqrst&scope=repo%2Cgist&token_type=bearer", FORM)
    assert parse_qs(new.decode()) == {
        "access_token": ["<access_token>"],
        "scope": ["repo,gist"],
        "token_type": ["bearer"],
    }


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"plain text that may be a token", "text/plain"),
        (b'{"a": 1} {"b": 2}', "application/json"),
        (b"[" * 100000 + b"]" * 100000, "application/json"),
        (b"[" * 50 + b"1" + b"]" * 50, "application/json"),
        (b'{"' + TOKEN.encode() + b'": 1}', "application/json"),
        (b"{" + b" " * 2**20 + b"}", "application/json"),
        (b"\xff\xfe{\x00}\x00", "application/json"),
    ],
)
def test_what_cannot_be_inspected_is_refused(body: bytes, kind: str) -> None:
    with pytest.raises(Denied):
        answer(body, kind)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=60)
TREES = st.recursive(
    LEAVES, lambda more: st.lists(more, max_size=4) | st.dictionaries(st.text(max_size=12), more, max_size=4)
)


@given(TREES, st.sampled_from([200, 201, 400, 500]), st.lists(st.text(max_size=8), max_size=3))
def test_a_token_does_not_pass_wherever_it_stands(tree: object, status: int, where: list[str]) -> None:
    said: object = {"x": TOKEN}
    for key in where:
        said = {key: said}
    body = json.dumps({"tree": tree, "token": said}).encode()
    try:
        new = answer(body, status=status)
    except Denied:
        return
    assert TOKEN.encode() not in new
    json.loads(new)


@given(
    st.binary(max_size=200), st.sampled_from(["application/json", FORM, "text/html", ""]), st.sampled_from([200, 400])
)
def test_any_bytes_are_passed_replaced_or_refused(body: bytes, kind: str, status: int) -> None:
    try:
        answer(body, kind, status)
    except Denied:
        pass


# -- requests


def test_a_refresh_token_is_found_in_a_form_and_in_json() -> None:
    for kind, body in (
        (FORM, b"grant_type=refresh_token&refresh_token=PLACE&client_id=x"),
        ("application/json", b'{"grant_type": "refresh_token", "refresh_token": "PLACE"}'),
    ):
        asked = TokenRequest(kind, body)
        assert (asked.grant, asked.refresh_token) == ("refresh_token", "PLACE")
        filled = asked.with_value(asked.written(), b"PLACE", b'va"l&ue')
        assert filled is not None
        assert TokenRequest(kind, filled).refresh_token == 'va"l&ue'


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FORM, b"grant_type=refresh_token&refresh_token=A&refresh_token=B"),
        (FORM, b"grant_type=password&refresh_token=A"),
        (FORM, b"\xff"),
        ("application/json", b'["refresh_token"]'),
        ("application/json", b'{"grant_type": "refresh_token", "refresh_token": ["A"]}'),
        ("multipart/form-data", b"grant_type=refresh_token&refresh_token=A"),
    ],
)
def test_anything_else_asks_for_no_refresh(kind: str, body: bytes) -> None:
    assert TokenRequest(kind, body).refresh_token == ""


def test_a_refresh_token_is_put_in_once_and_in_its_place_only() -> None:
    asked = TokenRequest(FORM, b"grant_type=refresh_token&refresh_token=PLACE&scope=PLACE")
    assert asked.with_value(asked.written(), b"PLACE", b"value") is None


@pytest.mark.parametrize(
    "target",
    ["/v1/oauth/token", "/v1/oauth/token?x=1", "//v1//oauth/token/", "/v1/./oauth/x/../token", "/v1/oauth/%74oken",
     "/V1/OAuth/Token", "/v1/oauth/%2574oken", "/v1/oauth/token;x=y"],
)  # fmt: skip
def test_every_reading_of_a_path_is_the_token_endpoint(target: str) -> None:
    assert same_path(target, ["/v1/oauth/token"])
    assert not same_path(target + "s", ["/v1/oauth/token"]) or ";" in target or "?" in target
