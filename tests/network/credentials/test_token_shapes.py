"""Placeholders look like the tokens they stand for, and say nothing else about them."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.network.credentials.token_shapes import jwt_claims, looks_like_token, shaped
from sandbox.network.secrets.placeholders import check_placeholder

KEY = b"k" * 32


def jwt(claims: dict[str, Any], signature: str = "c2lnbmF0dXJl" * 8) -> str:
    def part(data: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256', 'typ': 'JWT', 'kid': 'key-1', 'x5c': 'odd'})}.{part(claims)}.{signature}"


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ("sk-ant-oat01-" + "aB3" * 30, r"sk-ant-oat01-[A-Za-z0-9]{90}"),
        ("sk-ant-ort01-" + "aB3_-" * 18, r"sk-ant-ort01-[A-Za-z0-9]{90}"),
        ("sk-ant-api03-" + "aB3" * 31, r"sk-ant-api03-[A-Za-z0-9]{93}"),
        ("sk-proj-" + "aB3" * 40, r"sk-proj-[A-Za-z0-9]{120}"),
        ("gho_" + "aB3" * 12, r"gho_[A-Za-z0-9]{36}"),
        ("ya29.a0" + "aB3" * 40, r"ya29\.[A-Za-z0-9]{122}"),
        ("1//0g" + "aB3" * 30, r"1__[A-Za-z0-9]{92}"),
        ("npm_" + "aB3" * 12, r"npm_[A-Za-z0-9]{36}"),
        ("fk-" + "aB3-_" * 8, r"fk-[A-Za-z0-9]{40}"),
        ("sgamp_user_" + "aB3" * 12, r"sgamp_user_[A-Za-z0-9]{36}"),
        ("tool_" + "aB3" * 12, r"tool_[A-Za-z0-9]{36}"),  # in no list
        ("correct-horse-battery-staple-once-more", r"[a-z0-9]{38}"),
        ("0123456789abcdef" * 2, r"[0-9a-f]{32}"),
        ("1b4e28ba-2fa1-11d2-883f-0016d3cca427", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        ("hunter22", r"[a-z0-9]{20}"),  # as short as that, it would be found in ordinary text
    ],
)
def test_prefix_length_and_alphabet_are_those_of_the_token(value: str, shape: str) -> None:
    placeholder = shaped(value, KEY, "claude\0field")
    assert re.fullmatch(shape, placeholder)
    check_placeholder(placeholder, "x")


def test_the_same_token_has_the_same_placeholder_in_every_run_and_after_it_was_renewed() -> None:
    first = shaped("sk-ant-oat01-" + "aB3" * 30, KEY, "claude\0access")
    assert shaped("sk-ant-oat01-" + "xY7" * 30, KEY, "claude\0access") == first
    assert shaped("sk-ant-oat01-" + "aB3" * 30, KEY, "claude\0refresh") != first
    assert shaped("sk-ant-oat01-" + "aB3" * 30, b"j" * 32, "claude\0access") != first


def test_a_jwt_becomes_a_jwt_with_the_harmless_claims_and_another_signature() -> None:
    real = jwt(
        {
            "iss": "https://auth.openai.com",
            "aud": ["app_1"],
            "exp": 1800000000,
            "iat": 1700000000,
            "email": "person@example.org",
            "jti": "token-id",
            "sid": "session",
            "nonce": "once",
            "https://api.openai.com/auth": {
                "chatgpt_account_id": "acc-1",
                "chatgpt_plan_type": "pro",
                "organizations": [{"title": "Personal"}],
                "secret": "s",
            },
        }
    )
    placeholder = shaped(real, KEY, "codex\0access")
    assert jwt_claims(placeholder) == {
        "iss": "https://auth.openai.com",
        "aud": ["app_1"],
        "exp": 1800000000,
        "iat": 1700000000,
        "https://api.openai.com/auth": {"chatgpt_account_id": "acc-1", "chatgpt_plan_type": "pro"},
    }
    assert real.rpartition(".")[2] not in placeholder
    check_placeholder(placeholder, "x")


def test_a_token_hidden_in_a_harmless_claim_stays_outside() -> None:
    inner = "sk-ant-oat01-" + "aB3" * 30
    placeholder = shaped(jwt({"sub": inner, "scope": jwt({"a": 1}), "exp": 1}), KEY, "x")
    assert jwt_claims(placeholder) == {"exp": 1}


@pytest.mark.parametrize("text", ["a.b.c", "eyJ.eyJ.x", "not a token", "api.example.com.", "x" * 400])
def test_text_that_only_resembles_a_jwt_is_not_read_as_one(text: str) -> None:
    assert jwt_claims(text) is None
    assert not looks_like_token(text)


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=200))
def test_any_value_has_a_valid_placeholder_that_shares_nothing_long_with_it(value: str) -> None:
    placeholder = shaped(value, KEY, "label")
    check_placeholder(placeholder, "x")
    assert placeholder != value
    if jwt_claims(value) is None:
        shared = [value[at : at + 16] for at in range(len(value) - 15) if value[at : at + 16] in placeholder]
        assert not shared


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda more: st.dictionaries(st.text(), more))
)
def test_any_claims_make_a_valid_placeholder(claims: object) -> None:
    check_placeholder(shaped(jwt({"any": claims}), KEY, "x"), "x")
