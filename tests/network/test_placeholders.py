"""What a tenant holds instead of a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.config.model import Secret
from sandbox.errors import ConfigError
from sandbox.network.secrets.placeholders import placeholders


def test_each_secret_gets_a_placeholder_that_nobody_could_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = placeholders({"A": Secret(value="x"), "B": Secret(value="y")})
    assert first["A"] != first["B"]
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "another person's"))
    assert placeholders({"A": Secret(value="x")})["A"] != first["A"]
    assert all(len(one) > 32 and one != "x" for one in first.values())


def test_a_placeholder_is_the_same_in_every_run_whatever_the_value() -> None:
    """Claude Code asks once for each API key that looks new."""
    assert placeholders({"A": Secret(value="x")}) == placeholders({"A": Secret(value="y")})


def test_where_no_key_can_be_kept_a_placeholder_lasts_for_one_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "file"))
    assert placeholders({"A": Secret(value="x")}) != placeholders({"A": Secret(value="x")})


def test_a_chosen_placeholder_is_used() -> None:
    assert placeholders({"A": Secret(value="x", placeholder="sk-test-0000")}) == {"A": "sk-test-0000"}


@pytest.mark.parametrize("text", ["short", "with space in it", "umlaut-ä-here", "tab\tin-it-long"])
def test_a_placeholder_that_could_occur_by_chance_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"network\.secrets\.A\.placeholder"):
        placeholders({"A": Secret(value="x", placeholder=text)})


def test_placeholders_that_contain_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="overlaps with"):
        placeholders({"A": Secret(placeholder="aaaabbbb"), "B": Secret(placeholder="xx-aaaabbbb")})
