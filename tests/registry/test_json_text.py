"""Our small JSON is the standard library's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.registry.json_text import decode, encode

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_what_is_written_is_what_json_reads(value: Any) -> None:
    assert json.loads(encode(value)) == value
    assert decode(encode(value)) == value


@given(st.text())
def test_what_is_read_is_what_json_reads(text: str) -> None:
    try:
        wanted = json.JSONDecoder().raw_decode(text)[0]
    except ValueError:
        with pytest.raises(ValueError):
            decode(text)
    else:
        assert decode(text) == wanted or wanted != wanted  # NaN


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes", object(), {1: 2}])
def test_what_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        encode(value)
