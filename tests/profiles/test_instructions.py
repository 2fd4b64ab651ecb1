"""The text that tells an agent where it is, among lines that agents wrote."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox.config.model import Config
from sandbox.profiles.instructions import BEGIN, END, placed, text_about

marks = st.sampled_from([BEGIN, END, f"{END}\n", "\n", "lines\n", "<!--", "-->"])


@given(st.lists(st.one_of(marks, st.text(max_size=5)), max_size=8))
def test_there_is_one_block_whatever_an_agent_wrote_and_a_second_time_changes_nothing(pieces: list[str]) -> None:
    once = placed("".join(pieces), "told\n")
    assert once.count("told\n") >= 1
    assert placed(once, "told\n") == once
    assert placed(once, "other\n").count(BEGIN) == once.count(BEGIN)


def test_lines_around_the_block_stay() -> None:
    first = placed("mine\n", "told\n")
    assert placed(f"{first}after\n", "new\n") == f"mine\n\n{BEGIN}\nnew\n{END}\nafter\n"


def test_it_is_about_this_policy() -> None:
    config = Config.read({"network": {"allowed_hosts": ["a.example.com"]}, "state": {"name": "x", "keep": [".x"]}})
    text = text_about(config)
    assert "only a.example.com" in text
    assert "~/.x" in text
    assert "none" in text_about(Config())
    assert "every public host" in text_about(Config.read({"network": {"preset": "open"}}))
    assert "read-only" in text_about(Config.read({"filesystem": {"read_only": True}}))
