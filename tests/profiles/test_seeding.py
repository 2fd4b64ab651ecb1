"""Settings that go into a kept home."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandbox.profiles.seeding import toml, without_secrets

names = st.text(min_size=1, max_size=6).filter(lambda text: text.isprintable())
plain = st.one_of(
    st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=8).filter(lambda text: text.isprintable())
)
settings = st.dictionaries(
    names, st.one_of(plain, st.lists(plain, max_size=3), st.dictionaries(names, plain, max_size=3)), max_size=5
)


@given(settings)
def test_what_is_written_as_toml_reads_as_it_was(data: dict[str, Any]) -> None:
    assert tomllib.loads(toml(data)) == data


@given(settings)
def test_no_secret_is_left_at_any_depth(data: dict[str, Any]) -> None:
    data = {**data, "deep": {"list": [{"password": "x"}, "ghp_0123456789"], "value": "sk-0123456789", "model": "m"}}
    kept = without_secrets(data)
    text = json.dumps(kept)
    assert "ghp_" not in text
    assert "sk-0123456789" not in text
    assert kept["deep"]["model"] == "m"
    assert kept["deep"]["list"] == [{}]
