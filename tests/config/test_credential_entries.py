"""Ready-made credential entries: what ships, and what a person changes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.config.credential_entries import READY, complete, ready_made, text
from sandbox.config.model import Config
from sandbox.errors import ConfigError
from sandbox.policy.hosts import HostSet


def entries(given: dict[str, object]) -> dict[str, object]:
    return dict(complete(Config.read({"credentials": given}).credentials))


def test_every_ready_made_entry_is_complete_and_names_valid_hosts() -> None:
    found = complete(Config.read({"credentials": {name: {} for name in ready_made()}}).credentials)
    assert {"claude", "codex", "gemini", "github", "npm", "netrc", "pip", "pypi", "opencode"} <= found.keys()
    for name, entry in found.items():
        assert entry.file and entry.tokens, name
        for field in entry.tokens.values():
            HostSet([host.replace("{host}", "example.org") for host in field.hosts], name)
        for secret in entry.variables.values():
            HostSet(secret.hosts, name)
            assert secret.from_env or secret.from_command


def test_the_entries_that_are_read_are_those_that_are_written() -> None:
    assert Path(READY).read_text() == text(), "run: python -m sandbox.config.credential_entries"


def test_an_entry_without_a_file_is_the_ready_made_one_of_its_name() -> None:
    [claude] = complete(Config.read({"credentials": {"claude": {}}}).credentials).values()
    assert claude.file == "~/.claude/.credentials.json"
    assert claude.tokens["claudeAiOauth.refreshToken"].kind == "refresh"


def test_what_a_person_says_changes_the_ready_made_entry_and_leaves_the_rest() -> None:
    given = {"work": {"use": "claude", "file": "~/office/.credentials.json", "save_login": True}}
    [work] = complete(Config.read({"credentials": given}).credentials).values()
    assert (work.file, work.save_login) == ("~/office/.credentials.json", True)
    assert work.refresh.paths[0] == "/v1/oauth/token"


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="credentials.claud: .*'claud'.*claude"):
        entries({"claud": {}})


def test_a_variable_without_a_source_comes_from_the_persons_own() -> None:
    [entry] = complete(
        Config.read({"credentials": {"x": {"variables": {"KEY": {"hosts": ["a.b"]}}}}}).credentials
    ).values()
    assert entry.variables["KEY"].from_env == "KEY"


def test_a_variable_without_hosts_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"credentials\.x\.variables\.KEY"):
        entries({"x": {"variables": {"KEY": {}}}})
