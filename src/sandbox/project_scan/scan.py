"""Looks at a project: its languages, agents, MCP servers, CI and files that may hold secrets.

The project's top and the directories right below it (the parts of a monorepo), by name and, of a few files, by content.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox.config.patterns import Patterns
from sandbox.project_scan.agents import AGENTS, MCP_FILES
from sandbox.project_scan.ci import SERVICES, Service
from sandbox.project_scan.pytest_extra import with_pytest
from sandbox.project_scan.sensitive import PATTERNS
from sandbox.project_scan.sources import hosts_named
from sandbox.project_scan.tools import TOOLS, Tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sandbox.project_scan.reading import Project

MOST_DIRECTORIES = 100
MOST_SERVERS = 20
LONGEST = 2_000  # characters of a server's command
# Directories that other programs fill.
NOT_OURS = {"node_modules", "vendor", "target", "dist", "build", "venv", "env", "site-packages", "third_party"}
# A directory that can stand in a shell's command and on a screen as it is.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SENSITIVE = Patterns(list(PATTERNS))
_NESTED = [pattern for pattern in PATTERNS if "/" in pattern]
_PYTEST_FILES = {"pytest.ini", "conftest.py", "tox.ini"}
_PYTEST_SETTINGS = ("pyproject.toml", "setup.cfg", "requirements.txt", "requirements-dev.txt", "Pipfile")


@dataclass
class Part:
    """A package manager's files in one directory; `directory` is "." or one name."""

    tool: Tool
    directory: str
    files: list[str]
    tests: bool
    named: set[str]  # hosts that its files fetch from


@dataclass
class McpServer:
    """An MCP server that a client of the project starts."""

    file: str
    name: str
    command: list[str]  # empty: it is elsewhere, at an address
    variables: list[str]


@dataclass
class Findings:
    """All findings. `agents` and `secrets` name the telling files, `unread` lists files that are not valid JSON."""

    parts: list[Part] = field(default_factory=list)
    agents: dict[str, list[str]] = field(default_factory=dict)
    clients: list[str] = field(default_factory=list)
    servers: list[McpServer] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    secrets: dict[str, list[str]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


def scan(project: Project) -> Findings:
    """What is in the project. Raises nothing for what it finds there."""
    found = Findings()
    for directory, names in _directories(project):
        found.parts += _parts(project, directory, names)
        _look_for_secrets(project, directory, names, found.secrets)
    for agent, files in AGENTS.items():
        # A running sandbox puts empty directories where agents keep their settings.
        if here := [name for name in files if project.has(name) and not _empty(project, name)]:
            found.agents[agent] = here
    found.services = [one for one in SERVICES if project.has(one.path)]
    for file, key in MCP_FILES.items():
        if project.has(file):
            _read_client(project, file, key, found)
    return found


def _empty(project: Project, name: str) -> bool:
    return project.is_directory(name) and not project.names(name)


def _directories(project: Project) -> Iterator[tuple[str, list[str]]]:
    top = project.names()
    yield ".", top
    below = [name for name in top if _PLAIN.fullmatch(name) and name.lower() not in NOT_OURS]
    for name in [name for name in below if project.is_directory(name)][:MOST_DIRECTORIES]:
        yield name, project.names(name)


# -- languages


def _parts(project: Project, directory: str, names: list[str]) -> Iterator[Part]:
    languages: set[str] = set()
    here = set(names)
    for tool in TOOLS:
        files = [name for name in tool.files if name in here and project.has(f"{directory}/{name}")]
        if not files or tool.language in languages:
            continue
        languages.add(tool.language)
        tests = bool(tool.test) and _has_tests(project, directory, tool.language, here)
        if tests and tool.name == "pip":
            tool = with_pytest(tool, files[0], project.text(f"{directory}/{files[0]}"))
        yield Part(tool, directory, files, tests, hosts_named(project, directory, names))


def _has_tests(project: Project, directory: str, language: str, names: set[str]) -> bool:
    if language == "Python":
        if names & _PYTEST_FILES or project.has(f"{directory}/tests/conftest.py"):
            return True
        return any(re.search(r"\bpytest\b", project.text(f"{directory}/{name}")) for name in _PYTEST_SETTINGS)
    if language == "JavaScript":
        scripts = (project.json(f"{directory}/package.json") or {}).get("scripts")
        return isinstance(scripts, dict) and isinstance(scripts.get("test"), str)
    return True


# -- secrets


def _look_for_secrets(project: Project, directory: str, names: list[str], found: dict[str, list[str]]) -> None:
    for name in (*names, *_NESTED):
        path = name if directory == "." else f"{directory}/{name}"
        pattern = _SENSITIVE.match(name, False)
        if pattern is None or not project.has(path) or project.is_directory(path):
            continue
        telling = PATTERNS[pattern]
        if telling is None or telling.search(project.text(path)):
            found.setdefault(pattern, []).append(path)


# -- MCP


def _read_client(project: Project, file: str, key: str, found: Findings) -> None:
    data = project.json(file)
    servers = (data or {}).get(key, {})
    if data is None or not isinstance(servers, dict):
        found.unread.append(file)
        return
    if not any(isinstance(one, dict) and one.get("command") == "sandbox" and _ours(one) for one in servers.values()):
        found.clients.append(file)
    for name, entry in list(servers.items())[:MOST_SERVERS]:
        if server := _server(file, name, entry):
            found.servers.append(server)


def _ours(entry: dict[str, Any]) -> bool:
    """Whether a client's entry is `sandbox mcp` itself, not a server that it wraps."""
    words = entry.get("args")
    return isinstance(words, list) and words[:1] == ["mcp"] and "wrap" not in words


def _server(file: str, name: str, entry: Any) -> McpServer | None:
    """Reads an entry. None: it makes no sense, or it starts `sandbox` already."""
    if not isinstance(entry, dict):
        return None
    command, words, variables = entry.get("command"), entry.get("args", []), entry.get("env", {})
    if command is None and isinstance(entry.get("url"), str):
        return McpServer(file, name, [], [])
    if not isinstance(command, str) or not command or command.rpartition("/")[2] == "sandbox":
        return None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return None
    if len(name) + len(command) + sum(map(len, words)) > LONGEST:
        return None
    return McpServer(file, name, [command, *words], sorted(variables)[:20] if isinstance(variables, dict) else [])
