"""Agent files: Markdown with front matter that says who the agent is and which tools it may use.

    ---
    name: code-architect
    allowed-tools: Read, Grep, Bash(git:diff, git:log)
    disallowed-tools: [Write, Edit]
    ---

They are in the project, so they can only restrict what the config allows.
"""

from __future__ import annotations

import os

from sandbox.config import files
from sandbox.errors import ConfigError, NotFound, message_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DIRECTORIES = (".sandbox/agents", ".claude/agents")


class AgentFile:
    """One agent as its file describes it. `allowed` is None when the file names no tools."""

    __slots__ = ("name", "description", "file", "allowed", "disallowed", "command", "fields")

    def __init__(self, file: str, fields: dict[str, Any]) -> None:
        self.file = file
        self.fields = fields
        self.name = str(fields.get("name") or os.path.basename(file).removesuffix(".md"))
        self.description = str(fields.get("description") or "")
        listed = fields.get("allowed-tools", fields.get("tools"))
        self.allowed = None if listed is None else tool_list(listed, file)
        self.disallowed = tool_list(fields.get("disallowed-tools") or [], file)
        self.command = _words(fields.get("command"), file)


class FoundAgents:
    """The agents of a project by name, and the errors in invalid agent files."""

    __slots__ = ("agents", "problems")

    def __init__(self) -> None:
        self.agents: list[AgentFile] = []
        self.problems: dict[str, ConfigError] = {}  # by the agent's name


def look(project: str) -> FoundAgents:
    """Reads every agent file. An error in one file, or a name used by two files, affects only that agent."""
    found, known = FoundAgents(), dict[str, AgentFile]()
    for directory in DIRECTORIES:
        place = os.path.join(project, directory)
        for name in sorted(os.listdir(place)) if os.path.isdir(place) else ():
            if not name.endswith(".md"):
                continue
            try:
                agent = read(os.path.join(place, name))
            except (ConfigError, NotFound, ValueError) as problem:
                said = (
                    problem
                    if isinstance(problem, ConfigError)
                    else ConfigError(message_of(problem), file=f"{place}/{name}")
                )
                found.problems.setdefault(name.removesuffix(".md"), said)
                continue
            if agent.name in known:
                # Neither wins: a file added later must not remove restrictions of the other.
                other = known[agent.name].file
                found.problems[agent.name] = ConfigError(
                    "agent {name!r} is also defined in {other}; remove one of them",
                    name=agent.name,
                    other=other,
                    file=agent.file,
                )
            known.setdefault(agent.name, agent)
    names = sorted(name for name in known if name not in found.problems)
    found.agents = [known[name] for name in names]
    return found


def agents(project: str) -> list[AgentFile]:
    """The project's valid agents, by name."""
    return look(project).agents


def find(project: str, name: str) -> AgentFile:
    """The agent of that name. Raises ConfigError if its file is invalid, NotFound (with the known names) if unknown."""
    found = look(project)
    if name in found.problems:
        raise found.problems[name]
    for agent in found.agents:
        if agent.name == name:
            return agent
    known = ", ".join(agent.name for agent in found.agents)
    if not known:
        raise NotFound("no agent {name!r} in {directories}", name=name, directories=", ".join(DIRECTORIES))
    raise NotFound("no agent {name!r}; there are: {known}", name=name, known=known)


def read(file: str) -> AgentFile:
    """Reads one agent file. Raises ConfigError, NotFound, and ValueError for an unclosed quote in `command`."""
    text = files.read_text(file)
    if text is None:
        raise NotFound("no such file: {file}", file=file)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if not lines[first].lstrip().startswith("---"):
        return AgentFile(file, {})
    end = next((at for at in range(first + 1, len(lines)) if lines[at].rstrip() == "---"), None)
    # What looks like front matter and cannot be read may hold restrictions, so the agent must not run without it.
    if lines[first].rstrip() != "---" or end is None:
        raise ConfigError("the front matter must be between two lines `---`", file=file)
    # The lines in front keep line numbers right.
    source = files.parse(file, "\n" * (first + 1) + _quoted_lists("\n".join(lines[first + 1 : end])))
    return AgentFile(file, source.data)


def _quoted_lists(front: str) -> str:
    """Quotes an inline list of tool patterns, whose characters are YAML syntax (`Bash(git:*), Write`, `*`)."""
    out = []
    for line in front.splitlines():
        name, colon, value = line.partition(":")
        value = value.strip()
        if name in ("allowed-tools", "disallowed-tools", "tools") and colon and value:
            if not value.startswith(("'", '"')):
                items = split_tools(value[1:-1] if value.startswith("[") and value.endswith("]") else value)
                quoted = ", ".join("'" + item.strip("'\"").replace("'", "''") + "'" for item in items)
                line = f"{name}: [{quoted}]"
        elif line.lstrip().startswith("- *"):
            line = line.replace("- *", "- '*'", 1) if line.strip() == "- *" else line
        out.append(line)
    return "\n".join(out) + "\n"


def tool_list(value: object, file: str) -> list[str]:
    """Tools from a YAML list or from text separated by commas. Raises ConfigError."""
    if isinstance(value, str):
        return split_tools(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise ConfigError("expected a list of tools, not {value!r}", value=value, file=file)


def split_tools(text: str) -> list[str]:
    """`Read, Bash(git:diff, git:log)` into its two patterns: commas in parentheses do not separate."""
    found, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth <= 0:
            found.append(text[start:at].strip())
            start = at + 1
    found.append(text[start:].strip())  # an unclosed parenthesis is an error later, never a shortened list
    return [one for one in found if one]


def _words(value: object, file: str) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        import shlex

        return shlex.split(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise ConfigError("expected a command, not {value!r}", value=value, file=file)
