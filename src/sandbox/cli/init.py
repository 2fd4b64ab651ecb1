"""`sandbox init`: looks at the project, shows what it proposes, and writes the config file if the user agrees."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from sandbox.cli.output import print_json, shown
from sandbox.config.home import user_config_file
from sandbox.config.layers import resolve
from sandbox.errors import SandboxError
from sandbox.i18n import _

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from sandbox.config.layers import Resolved
    from sandbox.project_scan.proposal import Proposal, Setting
    from sandbox.project_scan.scan import Findings

DIRECTORY, NAME = ".sandbox", "config.yaml"
FILE = f"{DIRECTORY}/{NAME}"


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help=_("do not ask for confirmation"))
    parser.add_argument("--json", action="store_true", help=_("print what was found and what is proposed as JSON"))


def run(arguments: Namespace) -> int:
    from sandbox.project_scan.proposal import propose
    from sandbox.project_scan.reading import Project
    from sandbox.project_scan.scan import scan

    resolved = resolve({}, project=".")
    if os.path.realpath(FILE) == os.path.realpath(user_config_file()):
        raise SandboxError("this is your home directory; use `sandbox init` in a project")
    with Project(".") as project:
        found = scan(project)
        proposal = propose(found, resolved.users)
    text = _config_text(proposal.settings)
    there = os.path.lexists(FILE)
    if not arguments.json:
        _show(found, proposal, "" if there and _obeyed(proposal.settings, resolved) else text, there)
    written = bool(text) and not there and _consent(arguments)
    if written:
        _write(text)
    if arguments.json:
        print_json(_as_json(found, proposal, text, there, written))
    elif written:
        print(_("{file} was written").format(file=FILE))
    elif text and not there:
        print(_("nothing was written; `sandbox init --yes` writes {file}").format(file=FILE))
    return 0


def _consent(arguments: Namespace) -> bool:
    """Whether the user agrees. Without a terminal on both sides, nobody has seen the proposal or nobody can answer."""
    if arguments.yes:
        return True
    if arguments.json or not (os.isatty(0) and os.isatty(1)):
        return False
    print(_("Write {file}? [y/N] ").format(file=FILE), end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# -- the file


def _config_text(settings: list[Setting]) -> str:
    if not settings:
        return ""
    from sandbox.project_scan.proposal import as_yaml

    head = [
        _("For every sandbox in this project. A project's file can only tighten what your own allows:"),
        _("a host is allowed with --allow-host, or in ~/.sandbox/config.yaml."),
    ]
    return as_yaml(settings, head, {one.path: _.text(one.why) if one.why else "" for one in settings})


def _obeyed(settings: list[Setting], resolved: Resolved) -> bool:
    """Whether the existing file already has all these settings."""
    plain = resolved.config.plain()
    for one in settings:
        value: Any = plain
        for name in one.path.split("."):
            value = value[name]
        if one.path in ("filesystem.deny_write", "filesystem.blocked_patterns"):
            if not set(one.value) <= set(value):
                return False
        elif value != one.value:
            return False
    return True


def _write(text: str) -> None:
    """Creates the file, in a directory of the project itself. Replaces nothing. Raises SandboxError."""
    from sandbox.config import files
    from sandbox.config.model import Config

    Config.read(files.parse(FILE, text).data)  # never write what a run would refuse
    try:
        os.mkdir(DIRECTORY)
    except FileExistsError:
        pass
    try:
        directory = os.open(DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        raise SandboxError("{name} is not a directory; nothing was written", name=DIRECTORY) from None
    try:
        made = os.open(NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=directory)
        try:
            with open(made, "w", encoding="utf-8") as file:
                file.write(text)
        except BaseException:
            os.unlink(NAME, dir_fd=directory)  # half a file could be read as another configuration
            raise
    except FileExistsError:
        raise SandboxError("{file} exists; nothing was written", file=FILE) from None
    finally:
        os.close(directory)


# -- what is shown


def _show(found: Findings, proposal: Proposal, text: str, there: bool) -> None:
    if summary := ", ".join(_summary(found)):
        print(_("Found: {things}").format(things=shown(summary)))
    else:
        print(_("Found no language, agent, MCP server or CI that `sandbox init` knows."))
    if text:
        told = _("{file} exists and is not changed. Proposed for it:") if there else _("{file}, proposed:")
        print(f"\n{told.format(file=FILE)}\n\n{_indented(text)}", end="")
    elif there:
        print("\n" + _("{file} exists, and has all that would be proposed.").format(file=FILE))
    if proposal.commands:
        print("\n" + _("Commands:") + "\n")
        for command in proposal.commands:
            print(f"  # {shown(_.text(command.why))}\n  {shown(shlex.join(command.words))}")
    else:
        print("\n" + _("Anything runs behind walls: sandbox run -- COMMAND"))
    for snippet in proposal.snippets:
        print(f"\n{shown(snippet.file)} ({shown(_.text(snippet.why))}):\n")
        print("".join(f"  {shown(line)}\n" for line in snippet.lines), end="")
    if proposal.notes:
        print()
    for note in proposal.notes:
        print(f"- {shown(_.text(note))}")
    print()


def _indented(text: str) -> str:
    return "".join(f"  {line}" for line in text.splitlines(keepends=True))


def _summary(found: Findings) -> list[str]:
    things = [
        f"{part.tool.language} ({'' if part.directory == '.' else part.directory + '/'}{part.files[0]})"
        for part in found.parts
    ]
    things += [f"{agent} ({files[0]})" for agent, files in found.agents.items()]
    things += [_("MCP server {name} ({file})").format(name=one.name, file=one.file) for one in found.servers]
    return [*things, *(f"{one.name} ({one.path})" for one in found.services)]


def _as_json(found: Findings, proposal: Proposal, text: str, there: bool, written: bool) -> dict[str, object]:
    parts = [
        {
            "language": one.tool.language,
            "tool": one.tool.name,
            "directory": one.directory,
            "files": one.files,
            "tests": one.tests,
        }
        for one in found.parts
    ]
    return {
        "found": {
            "languages": parts,
            "agents": found.agents,
            "mcp_clients": found.clients,
            "mcp_servers": [{"name": one.name, "file": one.file} for one in found.servers],
            "ci": {one.name: one.path for one in found.services},
            "secrets": found.secrets,
            "unread": found.unread,
        },
        "hosts": proposal.hosts,
        "other_hosts": proposal.other_hosts,
        "config": {"file": FILE, "text": text, "exists": there, "written": written},
        "commands": [{"command": one.words, "why": str(one.why)} for one in proposal.commands],
        "snippets": [{"file": one.file, "lines": one.lines, "why": str(one.why)} for one in proposal.snippets],
        "notes": [str(note) for note in proposal.notes],
    }
