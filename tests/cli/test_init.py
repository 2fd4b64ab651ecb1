"""`sandbox init`: what it finds, what it proposes, and when it writes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.cli.person import Person
from tests.sandboxes import Command

pytestmark = pytest.mark.walls
CONFIG = Path(".sandbox/config.yaml")

NODE = {"package.json": '{"scripts": {"test": "node --version"}}', "package-lock.json": '{"lockfileVersion": 3}'}
PYTHON = {"pyproject.toml": "[tool.pytest.ini_options]\n", "requirements.txt": "flask\n", "CLAUDE.md": "Be kind.\n"}
RUST = {"Cargo.toml": "[package]\n", "Cargo.lock": 'source = "registry+https://github.com/rust-lang/crates.io-index"\n'}
GO = {"go.mod": "module x\n"}


def put(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def proposed(cli: Command, *words: str) -> dict[str, Any]:
    done = cli("init", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def commands(found: dict[str, Any]) -> list[str]:
    return [" ".join(one["command"]) for one in found["commands"]]


def obeyed(cli: Command) -> dict[str, Any]:
    """The settings of the project's file, none of which is ignored."""
    found = json.loads(cli("config", "list", "--json").stdout)
    assert found["ignored"] == []
    return {key: one["value"] for key, one in found["settings"].items() if one["origin"].startswith("project")}


def runs(cli: Command, *words: str) -> CompletedProcess[str]:
    done = cli("run", *words)
    assert done.returncode == 0, done.stderr
    assert "ignored" not in done.stderr
    return done


# -- projects


def test_a_node_project_gets_its_registry_its_cache_and_its_tests(cli: Command) -> None:
    put(NODE)
    found = proposed(cli, "--yes")
    assert commands(found) == [
        "sandbox run --allow-host registry.npmjs.org -- npm ci",
        "sandbox run -- npm test",
    ]
    assert obeyed(cli) == {"caches": ["npm"]}
    runs(cli, "--", "npm", "test")


def test_a_python_project_with_an_agent(cli: Command) -> None:
    put(PYTHON)
    found = proposed(cli, "--yes")
    install = "sandbox run --allow-host pypi.org --allow-host files.pythonhosted.org -- sh -c python3 -m venv .venv && "
    assert commands(found) == [
        install + ".venv/bin/pip install -r requirements.txt pytest",
        "sandbox run -- .venv/bin/python -m pytest",
        "sandbox claude",
    ]
    assert obeyed(cli) == {"caches": ["pip"]}
    assert runs(cli, "--", "python3", "-c", "print(6 * 7)").stdout == "42\n"


@pytest.mark.parametrize(
    ("files", "hosts", "cache"),
    [
        (RUST, ["index.crates.io", "static.crates.io"], "cargo"),
        (GO, ["proxy.golang.org", "sum.golang.org"], "go"),
    ],
    ids=["rust", "go"],
)
def test_a_rust_or_go_project(cli: Command, files: dict[str, str], hosts: list[str], cache: str) -> None:
    put(files)
    found = proposed(cli, "--yes")
    assert found["hosts"] == hosts and obeyed(cli) == {"caches": [cache]}
    for host in hosts:
        judged = cli("why", "--host", host)
        assert judged.returncode == 1 and "network.allowed_hosts" in judged.stdout  # not by the project's file
    runs(cli, *[word for host in hosts for word in ("--allow-host", host)], "--", "true")


def test_a_project_of_many_languages_is_found_below_its_top_too(cli: Command) -> None:
    put(PYTHON | {f"web/{name}": text for name, text in NODE.items()} | {"tools/go.mod": "module x\n"})
    put({".github/workflows/ci.yml": "on: push\n", "infra/prod.tfvars": "password = 1\n"})
    put({"node_modules/x/package.json": "{}", "vendor/go.mod": "module y\n"})
    found = proposed(cli, "--yes")
    where = [(one["language"], one["directory"]) for one in found["found"]["languages"]]
    assert where == [("Python", "."), ("Go", "tools"), ("JavaScript", "web")]
    assert "sandbox run --allow-host registry.npmjs.org -- sh -c cd web && npm ci" in commands(found)
    settings = obeyed(cli)
    assert settings["caches"] == ["pip", "npm", "go"] and settings["filesystem.deny_write"] == [".github/workflows"]
    assert "*.tfvars" in settings["filesystem.blocked_patterns"]
    runs(cli, "--", "sh", "-c", "! cat infra/prod.tfvars && ! touch .github/workflows/x && touch web/y")
    steps = next(one["lines"] for one in found["snippets"] if one["file"] == ".github/workflows")
    assert steps[-1] == "- run: sandbox run -- .venv/bin/python -m pytest"


def test_an_empty_project_needs_no_file(cli: Command) -> None:
    done = cli("init", "--yes")
    assert done.returncode == 0 and "sandbox run -- COMMAND" in done.stdout
    assert os.listdir() == []


# -- hosts


def test_hosts_that_only_the_projects_files_know_are_named_and_not_proposed(cli: Command) -> None:
    put(NODE | {"package-lock.json": '{"a": {"resolved": "https://evil.example/a.tgz"}}'})
    found = proposed(cli, "--yes")
    assert found["other_hosts"] == ["evil.example"] and found["hosts"] == []
    assert not any("evil.example" in command for command in commands(found))
    assert any("evil.example" in note for note in found["notes"])


def test_what_the_persons_own_preset_allows_is_narrowed_to_what_the_project_needs(cli: Command, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("network: {preset: registries}\n")
    put(NODE)
    found = proposed(cli, "--yes")
    assert commands(found)[0] == "sandbox run -- npm ci"
    settings = obeyed(cli)
    assert settings["network.preset"] == "closed" and settings["network.allowed_hosts"] == ["registry.npmjs.org"]
    assert cli("why", "--host", "registry.npmjs.org").returncode == 0
    assert cli("why", "--host", "pypi.org").returncode == 1


def test_hosts_that_the_persons_own_list_allows_need_no_option(cli: Command, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("network: {allowed_hosts: [registry.npmjs.org, api.example]}\n")
    put(NODE)
    found = proposed(cli, "--yes")
    assert commands(found)[0] == "sandbox run -- npm ci"
    assert obeyed(cli) == {"caches": ["npm"]}


# -- MCP


SERVERS = {
    "weather": {"command": "npx", "args": ["-y", "weather", "--key=sk-live-0000"], "env": {"API_KEY": "v-0000"}},
    "far": {"url": "https://mcp.example"},
    "done": {"command": "sandbox", "args": ["mcp", "wrap", "--", "x"]},
}


def test_mcp_servers_are_put_behind_walls_and_no_secret_is_shown(cli: Command) -> None:
    put({".mcp.json": json.dumps({"mcpServers": SERVERS}), ".vscode/mcp.json": '// mine\n{"servers": {}}'})
    found = proposed(cli)
    lines: dict[str, list[str]] = {one["file"]: [] for one in found["snippets"]}
    for one in found["snippets"]:
        lines[one["file"]] += one["lines"]
    own = '"sandbox": {"command": "sandbox", "args": ["mcp", "--overlay"]}'
    wrapped = json.loads("{" + lines[".mcp.json"][0] + "}")["weather"]
    options = ["mcp", "--allow-host", "registry.npmjs.org", "--name", "weather", "wrap", "--"]
    assert wrapped == {"command": "sandbox", "args": [*options, "npx", "-y", "weather", "…"]}
    assert lines == {".mcp.json": [lines[".mcp.json"][0], own], ".vscode/mcp.json": [own]}
    assert any("API_KEY" in note for note in found["notes"])
    shown = cli("init").stdout + json.dumps(found)
    assert "sk-live-0000" not in shown and "v-0000" not in shown


def test_a_client_that_has_our_server_is_not_asked_again(cli: Command) -> None:
    put({".mcp.json": '{"mcpServers": {"x": {"command": "sandbox", "args": ["mcp", "--overlay"]}}}'})
    assert proposed(cli)["snippets"] == []


# -- consent


def test_nothing_is_written_without_a_terminal_and_without_yes(cli: Command) -> None:
    put(NODE)
    done = cli("init", input="y\n")
    assert done.returncode == 0 and "caches" in done.stdout and "--yes" in done.stdout
    assert not CONFIG.parent.exists()
    proposed(cli)
    assert not CONFIG.parent.exists()


def test_a_person_who_says_yes_gets_the_file(home: Path) -> None:
    put(NODE)
    with Person("init") as person:
        assert person.sees("[y/N]")
        assert not CONFIG.exists()
        person.types("y\n")
        assert person.status() == 0
    assert 'caches: ["npm"]' in CONFIG.read_text()


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04"])
def test_a_person_who_does_not_say_yes_gets_nothing(home: Path, answer: str) -> None:
    put(NODE)
    with Person("init") as person:
        assert person.sees("[y/N]")
        person.types(answer)
        assert person.status() == 0
    assert not CONFIG.parent.exists()


def test_a_second_init_changes_nothing(cli: Command) -> None:
    put(NODE)
    cli("init", "--yes")
    before = CONFIG.read_bytes(), CONFIG.stat().st_mtime_ns
    done = cli("init", "--yes")
    assert done.returncode == 0 and "has all that would be proposed" in done.stdout
    assert (CONFIG.read_bytes(), CONFIG.stat().st_mtime_ns) == before


def test_a_file_of_the_persons_own_stays_and_the_proposal_is_shown_beside_it(cli: Command) -> None:
    put(NODE | {str(CONFIG): "limits: {memory: 1g}  # mine\n"})
    done = cli("init", "--yes")
    assert done.returncode == 0 and "not changed" in done.stdout and "caches" in done.stdout
    assert CONFIG.read_text() == "limits: {memory: 1g}  # mine\n"


def test_the_home_directory_is_not_a_project(cli: Command, home: Path) -> None:
    (home.parent / ".sandbox").mkdir()
    done = cli("init", "--yes", cwd=home.parent, env={**os.environ, "SANDBOX_HOME": str(home.parent / ".sandbox")})
    assert done.returncode == 125 and "home directory" in done.stderr


# -- a hostile project


def test_a_hostile_project_is_looked_at_without_harm(cli: Command, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "package.json").write_text('{"scripts": {"test": "x"}}')
    (outside / "mcp").write_text('{"mcpServers": {"stolen-name": {"command": "x"}}}')
    Path("package.json").symlink_to(outside / "package.json")
    Path("web").symlink_to(outside)
    Path(".mcp.json").symlink_to("../outside/mcp")
    os.mkfifo("pyproject.toml")
    os.mkfifo("Cargo.toml")
    os.mkdir("go.mod")
    put({"requirements.txt": "\0\x1b[31m" * 1000, ".cursor/mcp.json": '{"mcpServers": ' + "[" * 100_000})
    put(
        {
            ".vscode/mcp.json": json.dumps(
                {"servers": {"\x1b]0;x\x07": {"command": "\x1b[2J"}, "y" * 5000: {"command": "x"}}}
            )
        }
    )
    os.mkdir(b"\xff\x1b[31m")
    with open("Gemfile.lock", "wb") as file:
        file.truncate(2**33)
    done = cli("init")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr and "stolen-name" not in done.stdout
    found = proposed(cli, "--yes")
    languages = {one["language"]: one["files"] for one in found["found"]["languages"]}
    assert "JavaScript" not in languages and languages["Ruby"] == ["Gemfile.lock"]
    assert found["found"]["unread"] == [".cursor/mcp.json"]
    assert len(json.dumps(found)) < 20_000
    obeyed(cli)


@pytest.mark.parametrize("link", [".sandbox", ".sandbox/config.yaml"])
def test_a_planted_link_is_not_written_through(cli: Command, tmp_path: Path, link: str) -> None:
    put(NODE)
    target = tmp_path / "target"
    if link == ".sandbox":
        target.mkdir()
        Path(link).symlink_to(target)
    else:
        Path(".sandbox").mkdir()
        Path(link).symlink_to(target)
    done = cli("init", "--yes")
    assert done.returncode == 125 or "not changed" in done.stdout
    assert not target.is_file() and not (target / "config.yaml").exists()
