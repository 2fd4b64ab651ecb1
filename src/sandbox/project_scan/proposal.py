"""What to write for a project: a config file that only tightens, commands, and snippets for the tools found.

A project's file cannot allow a host (config/tighten.py), and a file that tried to would be reported at every run. So
hosts are options of the commands that need them, unless the person's own file allows them already.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox.config.model import Config
from sandbox.config.network_presets import HOSTS, REGISTRIES
from sandbox.config.patterns import Patterns
from sandbox.config.variables import secret_value, secret_word
from sandbox.errors import Message
from sandbox.project_scan.agents import MCP_FILES
from sandbox.project_scan.tools import NPM, PYPI

if TYPE_CHECKING:
    from sandbox.project_scan.scan import Findings, McpServer, Part

# What an MCP server is started with -> the hosts that this fetches it from.
LAUNCHERS = {"npx": NPM, "pnpx": NPM, "bunx": NPM, "uvx": PYPI, "uv": PYPI, "pipx": PYPI}


@dataclass
class Setting:
    """One line of the config file, and why it is there."""

    path: str
    value: list[str] | str
    why: Message | None  # None: as the line above


@dataclass
class CommandLine:
    """One command line, and what it does."""

    words: list[str]
    why: Message


@dataclass
class Snippet:
    """Lines for a file that the person edits."""

    file: str
    lines: list[str]
    why: Message


@dataclass
class Proposal:
    settings: list[Setting] = field(default_factory=list)
    commands: list[CommandLine] = field(default_factory=list)
    snippets: list[Snippet] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # what the project's package managers need
    other_hosts: list[str] = field(default_factory=list)  # named by its files, not proposed


def propose(found: Findings, users: Config) -> Proposal:
    """`users` is the configuration without the project's own file."""
    made = Proposal()
    made.hosts = list(dict.fromkeys(host for part in found.parts for host in _hosts(part)))
    named = {host for part in found.parts for host in part.named}
    made.other_hosts = sorted(named - set(REGISTRIES))
    made.settings = _settings(found, users, made.hosts)
    for part in found.parts:
        made.commands += _commands(part, users)
    for agent, files in found.agents.items():
        made.commands.append(
            CommandLine(["sandbox", agent], Message("{file}: this agent, reaching its model only", file=files[0]))
        )
    for server in found.servers:
        _wrap(server, made)
    for file in found.clients:
        made.snippets.append(_own_server(file))
    _ci_step(found, made)
    made.notes += [Message("{file} is not JSON that can be read", file=file) for file in found.unread]
    if made.other_hosts:
        hosts = ", ".join(made.other_hosts)
        made.notes.append(Message("the project's files also name {hosts}: --allow-host, if you know them", hosts=hosts))
    return made


def _hosts(part: Part) -> list[str]:
    """The tool's own hosts, unless the lock file names others instead, and the known registries that it names."""
    known = [host for host in sorted(part.named) if host in REGISTRIES]
    own = [] if part.named and not part.named & set(part.tool.hosts) and part.tool.name != "Cargo" else part.tool.hosts
    return [*own, *(host for host in known if host not in own)]


# -- the config file


def _settings(found: Findings, users: Config, hosts: list[str]) -> list[Setting]:
    made = []
    used = {cache for part in found.parts for cache in part.tool.caches}
    caches = [name for name in users.caches if name in used]
    if found.parts and caches != users.caches:
        made.append(Setting("caches", caches, Message("Of your package caches, those of the tools used here.")))
    if found.services:
        why = Message("CI runs these with its own secrets. Remove the line if an agent is to edit them.")
        made.append(Setting("filesystem.deny_write", [one.path for one in found.services], why))
    blocked = Patterns(users.filesystem.blocked_patterns)
    new = [pattern for pattern, files in found.secrets.items() if not all(blocked.match(one, False) for one in files)]
    if new:
        why = Message("Files here that may hold secrets. Remove what a build needs.")
        made.append(Setting("filesystem.blocked_patterns", new, why))
    # If they have a list of their own, the project's list would only remove entries from it.
    if users.network.preset != "closed" and hosts and not users.network.allowed_hosts:
        why = Message("The hosts that the package managers here need, out of those that your own file allows.")
        made += [Setting("network.preset", "closed", why), Setting("network.allowed_hosts", hosts, None)]
    return made


def as_yaml(settings: list[Setting], head: list[str], said: dict[str, str]) -> str:
    """The file's text. `head` is its comment, `said` the reason of each setting, in the person's language."""
    lines = [f"# {line}" for line in head]
    section = ""
    for one in settings:
        above, _, name = one.path.rpartition(".")
        if above != section:
            lines.append(f"{above}:")
            section = above
        indent = "  " if above else ""
        if said.get(one.path):
            lines.append(f"{indent}# {said[one.path]}")
        value = one.value if isinstance(one.value, str) else f"[{', '.join(json.dumps(item) for item in one.value)}]"
        lines.append(f"{indent}{name}: {value}")
    return "\n".join(lines) + "\n"


# -- commands


def _commands(part: Part, users: Config) -> list[CommandLine]:
    install = ["sandbox", "run", *_allowing(_hosts(part), users), "--", *_in(part, part.tool.install)]
    why = Message("install what {file} names", file=_path(part))
    made = [CommandLine(install, why)]
    if part.tests:
        why = Message("the tests, without network")
        made.append(CommandLine(["sandbox", "run", "--", *_in(part, part.tool.test)], why))
    return made


def _in(part: Part, command: str) -> list[str]:
    """A tool's command in the part's directory."""
    words = shlex.split(command)
    if part.directory == ".":
        return words
    inner = words[2] if words[:2] == ["sh", "-c"] else command
    return ["sh", "-c", f"cd {part.directory} && {inner}"]


def _path(part: Part) -> str:
    return part.files[0] if part.directory == "." else f"{part.directory}/{part.files[0]}"


def _allowing(hosts: list[str] | tuple[str, ...], users: Config) -> list[str]:
    """Options for hosts that the person's own file does not allow. They replace its list, so they name all or none."""
    preset = HOSTS[users.network.preset]
    missing = [host for host in hosts if host not in preset and "*" not in preset]
    if all(host in users.network.allowed_hosts for host in missing):
        return []
    return [word for host in missing for word in ("--allow-host", host)]


# -- snippets


def _wrap(server: McpServer, made: Proposal) -> None:
    if not server.command:
        return
    program = server.command[0].rpartition("/")[2]
    if program in ("docker", "podman"):
        made.notes.append(
            Message("{name} is started by {program}, which has walls of its own", name=server.name, program=program)
        )
        return
    allow = [word for host in LAUNCHERS.get(program, ()) for word in ("--allow-host", host)]
    hidden = [word if not secret_value(word.rpartition("=")[2]) else "…" for word in server.command]
    entry = {"command": "sandbox", "args": ["mcp", *allow, "--name", server.name, "wrap", "--", *hidden]}
    line = f"{json.dumps(server.name)}: {json.dumps(entry)}"
    made.snippets.append(Snippet(server.file, [line], Message("the MCP server {name}, behind walls", name=server.name)))
    if secrets := [name for name in server.variables if secret_word(name)]:
        note = Message(
            "{names} of {name} will not pass: see network.secrets", names=", ".join(secrets), name=server.name
        )
        made.notes.append(note)


def _own_server(file: str) -> Snippet:
    line = '"sandbox": {"command": "sandbox", "args": ["mcp", "--overlay"]}'
    return Snippet(file, [line], Message("under {key}: tools that act in a sandbox", key=MCP_FILES[file]))


def _ci_step(found: Findings, made: Proposal) -> None:
    """The commands of the first part with tests, as steps of the first service."""
    tested = next((part for part in found.parts if part.tests), None)
    if not found.services or tested is None:
        return
    service = found.services[0]
    ours = [shlex.join(command.words) for command in _commands(tested, Config())]
    lines = ["sudo apt-get install -y bubblewrap", "pip install agent-sandbox", *ours]
    steps = [service.step_of(line) for line in lines]
    made.snippets.append(Snippet(service.path, steps, Message("{name}: the tests behind walls", name=service.name)))
