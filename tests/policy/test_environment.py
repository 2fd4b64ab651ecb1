"""AC-3: which variables pass."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.config.model import Config, Environment
from sandbox.config.variables import glob
from sandbox.policy.environment import EnvFilter, fixed_path


def passes(name: str, value: str = "x", **settings: object) -> bool:
    return bool(EnvFilter(Environment(**settings)).check(name, value))


@pytest.mark.parametrize("name", ["PATH", "HOME", "USER", "NODE_ENV", "DEBUG", "LANG", "TERM", "CI", "PYTHONPATH"])
def test_ac_3_ordinary_variables_pass(name: str) -> None:
    assert passes(name)


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY", "STRIPE_SECRET", "NPM_TOKEN", "AWS_REGION", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN",
        "GITHUB_ACTOR", "DB_PASSWORD", "GOOGLE_CREDENTIALS", "npm_token", "Database_Url", "SENTRY_DSN",
    ],
)  # fmt: skip
def test_ac_3_secrets_are_left_out(name: str) -> None:
    assert not passes(name)


@pytest.mark.parametrize(
    "value",
    ["sk-abcdef", "ghp_0123456789", "AKIAIOSFODNN7EXAMPLE", "postgres://u:p@db/x", "-----BEGIN PRIVATE KEY-----"],
)
def test_a_secret_under_an_innocent_name_is_left_out(value: str) -> None:
    assert not passes("SETTING", value)
    assert passes("SETTING", "https://example.org/a@b")


@pytest.mark.parametrize(
    "name",
    [
        "SSH_AUTH_SOCK",
        "DBUS_SESSION_BUS_ADDRESS",
        "DOCKER_HOST",
        "XDG_RUNTIME_DIR",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "https_proxy",
    ],
)
def test_pointers_to_the_host_are_left_out(name: str) -> None:
    decision = EnvFilter(Environment(filter_secrets=False)).check(name)
    assert (decision.allowed, decision.rule) == (False, "host-pointer")


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "BASH_ENV", "NODE_OPTIONS", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "BASH_FUNC_x%%"]
)
def test_launch_hooks_are_left_out(name: str) -> None:
    assert EnvFilter(Environment()).check(name).rule == "launch-hook"


def test_the_users_lists_decide_first() -> None:
    assert passes("MY_TOKEN", allow=["MY_TOKEN"])
    assert not passes("MY_TOKEN", allow=["MY_TOKEN"], block=["my_*"])
    assert not passes("NODE_ENV", block=["NODE_*"])
    assert passes("MY_TOKEN", filter_secrets=False)
    assert not passes("my_token", allow=["MY_TOKEN"])


def test_what_secrets_are_read_from_or_holds_a_value_is_left_out_also_where_everything_is_allowed() -> None:
    data: dict[str, Any] = {
        "network": {"secrets": {"A": {"from_env": "CONN", "hosts": ["a.example"]}}},
        "credentials": {"mine": {"variables": {"B": {"value": "a plain value", "hosts": ["b.example"]}}}},
        "environment": {"allow": ["*"], "set": {"CONN": "placeholder"}},
    }
    mine = {"CONN": "no-secret-by-its-looks", "COPY": "x:no-secret-by-its-looks", "MORE": "a plain value", "C": "d"}
    rules = EnvFilter.of(Config.read(data), mine)
    assert rules.filter(mine).keys() == {"PATH", "TMPDIR", "C", "CONN"}
    assert rules.filter(mine)["CONN"] == "placeholder"
    assert rules.check("CONN").rule == "network.secrets.A.from_env"


def test_filtering_fixes_what_is_inside_and_sets_what_was_said() -> None:
    given = {"PATH": ".:/usr/bin::/usr/bin:bin", "API_KEY": "s", "TMP": "/var/folders", "OLDPWD": "/", "A": "b"}
    filtered = EnvFilter(Environment(set={"API_KEY": "placeholder"})).filter(given)
    assert filtered == {"PATH": "/usr/bin", "TMP": "/tmp", "TMPDIR": "/tmp", "A": "b", "API_KEY": "placeholder"}


def test_an_empty_path_becomes_the_standard_one() -> None:
    assert fixed_path("::.") == "/usr/local/bin:/usr/bin:/bin"


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_the_glob_agrees_with_pythons(pattern: str, text: str) -> None:
    import fnmatch

    assert glob(pattern, text) == fnmatch.fnmatchcase(text, pattern)


def test_a_command_is_kept_without_the_secrets_in_it() -> None:
    given = {"MY_TOKEN": "hunter2hunter2", "SHORT_KEY": "abc", "PLAIN": "visible"}
    words = ["curl", "-H", "Bearer hunter2hunter2", "abc", "visible"]
    kept = EnvFilter(Environment()).redacted(words, given)
    assert kept == ["curl", "-H", "Bearer [redacted]", "abc", "visible"]
