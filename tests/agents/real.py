"""The real programs: where they are installed, what a person types, and what their models answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.agents import apis

WHERE = Path(os.environ.get("SANDBOX_AGENTS") or Path(__file__).parents[2] / ".agents")
MADE = "made by the agent\n"


@dataclass
class Agent:
    """One program, from its first screen to its end."""

    name: str
    variable: str  # the person's variable with the key
    key: str
    host: str
    answer: Callable[[Path], Any]  # from the file that is to be written
    ready: tuple[str, ...]  # on the screen when it waits for a prompt
    words: tuple[str, ...] = ()
    asks: str = ""  # what it asks before it writes the file
    yes: str = "\r"
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # of the person's home
    also: tuple[str, ...] = ()  # further hosts that it needs
    said: str = apis.SAID  # what is surely drawn in one piece of the model's last words

    @property
    def directory(self) -> Path | None:
        """Where its program is, or None."""
        found = (WHERE / self.name / "node_modules" / ".bin", WHERE / self.name / "bin")
        return next((one for one in found if (one / self.name).exists()), None)


def _write(parameter: str, tool: str, api: Any) -> Callable[[Path], Any]:
    return lambda file: api(tool, {parameter: str(file), "content": MADE})


ANTHROPIC = "sk-ant-api03-thisIsTheRealKeyOfThePerson-0123456789abcdef-AA"
OPENAI = "sk-proj-thisIsTheRealKeyOfThePerson0123456789abcdef"
GOOGLE = "AIzaThisIsTheRealKeyOfThePerson0123456789"

GITHUB = "github_pat_11ABCDEFG0thisIsTheRealTokenOfThePerson_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"

AGENTS = [
    Agent(
        name="claude",
        variable="ANTHROPIC_API_KEY",
        key=ANTHROPIC,
        host="api.anthropic.com",
        answer=_write("file_path", "Write", apis.anthropic),
        ready=("? for shortcuts", "bypass permissions on"),
        asks="Do you want to create made.txt",
    ),
    Agent(
        name="codex",
        variable="OPENAI_API_KEY",
        key=OPENAI,
        host="api.openai.com",
        answer=lambda file: apis.responses("exec_command", {"cmd": f"printf '{MADE[:-1]}\\n' > {file}"}),
        ready=("default ·",),
    ),
    Agent(
        name="gemini",
        variable="GEMINI_API_KEY",
        key=GOOGLE,
        host="generativelanguage.googleapis.com",
        answer=_write("file_path", "write_file", apis.gemini),
        ready=("Type your message",),
        asks="Apply this change?",
    ),
    Agent(
        name="opencode",
        variable="ANTHROPIC_API_KEY",
        key=ANTHROPIC,
        host="api.anthropic.com",
        answer=_write("filePath", "write", apis.anthropic),
        ready=("Ask anything",),
    ),
    Agent(
        name="aider",
        variable="OPENAI_API_KEY",
        key=OPENAI,
        host="api.openai.com",
        answer=lambda file: apis.chat(None, {}, f"made.txt\n```\n{MADE}```\n{apis.SAID}"),
        words=("--model", "gpt-4o", "--edit-format", "whole", "--no-auto-commits"),
        ready=("whole>",),
        asks="Create new file?",
        yes="y\r",
        said="Applied edit to made.txt",
        files={".gitconfig": "[user]\n\tname = Person\n\temail = person@example.com\n"},
    ),
    Agent(
        name="qwen",
        variable="OPENAI_API_KEY",
        key=OPENAI,
        host="api.openai.com",
        answer=_write("file_path", "write_file", lambda tool, arguments: apis.chat(tool, arguments)),
        ready=("Type your message",),
        asks="Apply this change?",
        env={"OPENAI_MODEL": "gpt-4o", "OPENAI_BASE_URL": "https://api.openai.com/v1"},
    ),
    Agent(
        name="copilot",
        variable="COPILOT_GITHUB_TOKEN",
        key=GITHUB,
        host="api.githubcopilot.com",
        also=("api.github.com",),
        answer=lambda file: apis.copilot("create", {"path": str(file), "file_text": MADE}),
        words=("--model", apis.COPILOT_MODEL, "--stream", "off"),
        said="asked.",  # its spinner is drawn over the beginning
        ready=("? help",),
        asks="Do you want to",
    ),
    Agent(
        name="goose",
        variable="ANTHROPIC_API_KEY",
        key=ANTHROPIC,
        host="api.anthropic.com",
        answer=_write("path", "write", apis.anthropic),
        ready=("Enter to send",),
        env={"GOOSE_PROVIDER": "anthropic", "GOOSE_MODEL": "claude-sonnet-4-5"},
    ),
    Agent(
        name="droid",
        variable="FACTORY_API_KEY",
        key="fk-thisIsTheRealKeyOfThePerson0123456789abcdef",
        host="api.factory.ai",
        answer=_write("file_path", "Create", apis.factory),
        ready=("? for help",),
        asks="Yes, allow",
        files={".factory/settings.json": '{"sessionDefaultSettings": {"model": "claude-sonnet-4-5-20250929"}}'},
    ),
]
