"""Config files as hostile input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.config import files
from sandbox.config.agents import split_tools
from sandbox.config.dialects import create, manager, srt, uds
from sandbox.config.model import Config
from sandbox.errors import ConfigError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(["network", "filesystem", "environment", "limits", "sandbox", "env", "resources", "mode"])


@given(st.text("abc:-[]{}&*!|>'\"# \n\t%@`,?", max_size=60))
def test_any_text_is_a_mapping_or_a_config_error(text: str) -> None:
    for name in ("config.yaml", "config.json"):
        try:
            assert isinstance(files.parse(name, text).data, dict)
        except ConfigError as problem:
            assert problem.file == name


@given(st.dictionaries(KEYS | st.text(max_size=8), PLAIN, max_size=4))
def test_any_data_is_a_config_or_a_config_error(data: dict[str, object]) -> None:
    try:
        Config.read(data)
    except ConfigError:
        pass


@pytest.mark.parametrize("dialect", [uds, srt, create, manager])
@given(data=st.dictionaries(KEYS | st.text(max_size=8), PLAIN, max_size=4))
def test_any_data_in_any_dialect_is_a_config_or_a_config_error(dialect: object, data: dict[str, object]) -> None:
    try:
        Config.read(dialect.translate(data).data)  # type: ignore[attr-defined]
    except ConfigError:
        pass


@given(st.text("ab(),: *", max_size=30))
def test_tools_are_split_without_losing_a_letter(text: str) -> None:
    assert "".join(split_tools(text)).replace(" ", "").count("a") == text.count("a")


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 5000, "- " * 5000, "a: " + "[" * 40 + "]" * 40])
def test_depth_is_bounded(text: str) -> None:
    with pytest.raises(ConfigError):
        files.parse("config.yaml", text)
