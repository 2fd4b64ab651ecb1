"""Setting one value in a file: everything else stays, comments too."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sandbox.config.edit import set_value, unset_value
from sandbox.errors import ConfigError

FILE = """\
# my settings
mode: light   # weak machine

network:
  # work
  allowed_hosts:
    - a.org  # ours
    - b.org
  # end of network

limits: {memory: 1g, pids: 5}  # small
"""


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("mode", "max", FILE.replace("mode: light ", "mode: max ")),
        ("limits.memory", "2g", FILE.replace("memory: 1g", 'memory: "2g"')),
        ("limits.cpus", 2, FILE.replace("pids: 5}", "pids: 5, cpus: 2}")),
        (
            "network.allowed_hosts",
            ["c.org"],
            FILE.replace("\n    - a.org  # ours\n    - b.org", ' ["c.org"]'),
        ),
        ("network.allow_git", True, FILE.replace("    - b.org\n", "    - b.org\n  allow_git: true\n")),
        ("enabled", True, FILE + "enabled: true\n"),
        ("environment.filter_secrets", True, FILE + "environment:\n  filter_secrets: true\n"),
    ],
)
def test_one_setting_changes_and_nothing_else(path: str, value: object, expected: str) -> None:
    assert set_value(FILE, path.split("."), value) == expected


def test_an_empty_file_and_an_empty_section_are_filled() -> None:
    assert set_value("", ["a", "b"], 1) == "a:\n  b: 1\n"
    assert set_value("# only words\n", ["a"], "x") == "# only words\na: x\n"
    assert yaml.safe_load(set_value("network:\n\nmode: max\n", ["network", "intercept"], True)) == {
        "network": {"intercept": True},
        "mode": "max",
    }


def test_anything_but_a_mapping_is_refused() -> None:
    with pytest.raises(ConfigError):
        set_value("mode: max\n", ["mode", "x"], 1)
    with pytest.raises(ConfigError):
        set_value("[1]\n", ["mode"], 1)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), VALUES, max_size=4),
    st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=3),
    VALUES,
    st.booleans(),
)
def test_any_edit_is_right_or_refused(data: dict[str, object], path: list[str], value: object, flow: bool) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True) if data else ""
    try:
        changed = set_value(text, path, value)
    except ConfigError:
        return
    expected: object = yaml.safe_load(changed)
    for name in path:
        assert isinstance(expected, dict)
        expected = expected[name]
    assert expected == value


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), VALUES, max_size=4),
    st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=3),
    st.booleans(),
)
def test_any_unset_is_right_or_refused(data: dict[str, object], path: list[str], flow: bool) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True) if data else ""
    try:
        changed = unset_value(text, path)
    except ConfigError:
        return
    if changed is None:
        return
    left: object = yaml.safe_load(changed) or {}
    for name in path:
        if not isinstance(left, dict) or name not in left:
            return
        left = left[name]
    raise AssertionError(f"{path} is still in {changed!r}")
