"""The tables of `sandbox init` agree with the rest of the product, and what they look for is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.config.caches import TOOLS as CACHES
from sandbox.config.model import SENSITIVE_PATTERNS
from sandbox.config.network_presets import REGISTRIES
from sandbox.config.patterns import Patterns
from sandbox.profiles.find import PACKAGED
from sandbox.project_scan.agents import AGENTS
from sandbox.project_scan.proposal import LAUNCHERS
from sandbox.project_scan.reading import MOST_BYTES, Project
from sandbox.project_scan.scan import scan
from sandbox.project_scan.sensitive import PATTERNS
from sandbox.project_scan.sources import FIELDS, hosts_named
from sandbox.project_scan.tools import TOOLS, Tool


def test_no_tool_asks_for_a_host_beyond_the_preset_of_registries() -> None:
    hosts = {host for tool in TOOLS for host in tool.hosts} | {host for hosts in LAUNCHERS.values() for host in hosts}
    assert hosts - set(REGISTRIES) == set()


def test_every_cache_of_a_tool_is_one_that_sandboxes_know() -> None:
    assert {cache for tool in TOOLS for cache in tool.caches} <= set(CACHES)


def test_every_packaged_agent_is_looked_for() -> None:
    profiles = {one.stem for one in Path(PACKAGED).glob("*.json")}
    assert set(AGENTS) == profiles - {"shell"}


def test_a_file_is_listed_as_sensitive_only_where_the_built_in_patterns_do_not_block_it() -> None:
    built_in = Patterns(SENSITIVE_PATTERNS)
    assert [one for one in PATTERNS if built_in.match(one.replace("*", "x"), False)] == []


LOCKS = {
    "package-lock.json": (
        '{"packages": {"a": {"resolved": "https://registry.npmjs.org/a/-/a-1.tgz", "funding": {"url": "https://money.example"}},'
        ' "b": {"resolved": "git+ssh://git@git.example/b.git#1"}}}',
        {"registry.npmjs.org", "git.example"},
    ),
    "yarn.lock": ('"a@^1":\n  resolved "https://registry.yarnpkg.com/a/-/a-1.tgz#0"\n', {"registry.yarnpkg.com"}),
    "pnpm-lock.yaml": ("    resolution: {tarball: https://codeload.github.com/a/b}\n", {"codeload.github.com"}),
    "uv.lock": (
        'source = { registry = "https://pypi.org/simple" }\n    { url = "https://files.pythonhosted.org/a.whl" },\n',
        {"pypi.org", "files.pythonhosted.org"},
    ),
    "poetry.lock": ('[package.source]\nurl = "https://user:password@packages.example/simple"\n', {"packages.example"}),
    "requirements.txt": (
        "--index-url https://index.example/simple\nflask # https://docs.example\nx @ git+https://github.com/a/x\n",
        {"index.example", "github.com"},
    ),
    "Cargo.lock": (
        'source = "registry+https://github.com/rust-lang/crates.io-index"\nsource = "git+https://codeberg.org/a/b#1"\n',
        {"codeberg.org"},
    ),
    "Pipfile.lock": ('"sources": [{"url": "https://pypi.org/simple"}]', {"pypi.org"}),
    "Gemfile.lock": ("GEM\n  remote: https://rubygems.org/\n", {"rubygems.org"}),
    ".npmrc": ("@corp:registry=https://npm.corp.example/\n", {"npm.corp.example"}),
}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_says_where_packages_come_from(name: str, tmp_path: Path) -> None:
    text, hosts = LOCKS[name]
    (tmp_path / name).write_text(text)
    assert name in FIELDS
    with Project(str(tmp_path)) as project:
        assert hosts_named(project, ".", [name]) == hosts


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: f"{tool.name}-{tool.files[0]}")
def test_a_tool_is_known_by_each_of_its_files(tool: Tool, tmp_path: Path) -> None:
    for name in tool.files:
        place = tmp_path / name.replace(".", "-")
        place.mkdir()
        (place / name).write_text("")
        with Project(str(place)) as project:
            assert [part.tool for part in scan(project).parts] == [tool]


def test_reading_has_an_end(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(4 * MOST_BYTES)
    with Project(str(tmp_path)) as project:
        read = sum(len(project.text("huge")) for _ in range(100))
    assert read == MOST_BYTES
