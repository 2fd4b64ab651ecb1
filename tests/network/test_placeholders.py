"""What a tenant holds instead of a secret."""

from __future__ import annotations

import pytest

from sandbox.config.model import Secret
from sandbox.errors import ConfigError
from sandbox.network.secrets.placeholders import placeholders


def test_each_secret_gets_a_placeholder_that_nobody_could_guess() -> None:
    first = placeholders({"A": Secret(value="x"), "B": Secret(value="y")})
    second = placeholders({"A": Secret(value="x")})
    assert len({first["A"], first["B"], second["A"]}) == 3
    assert all(len(one) > 32 and one != "x" for one in first.values())


def test_a_chosen_placeholder_is_used() -> None:
    assert placeholders({"A": Secret(value="x", placeholder="sk-test-0000")}) == {"A": "sk-test-0000"}


@pytest.mark.parametrize("text", ["short", "with space in it", "umlaut-ä-here", "tab\tin-it-long"])
def test_a_placeholder_that_could_occur_by_chance_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"network\.secrets\.A\.placeholder"):
        placeholders({"A": Secret(value="x", placeholder=text)})


def test_placeholders_that_contain_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="overlaps with"):
        placeholders({"A": Secret(placeholder="aaaabbbb"), "B": Secret(placeholder="xx-aaaabbbb")})
