"""Terminal transcripts in the documentation: `$ command` lines, each with the output that the page shows."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# What differs from run to run, and what it looks like.
_VARYING = [
    (r"vm\\-[0-9a-f]{8}", r"vm-[0-9a-f]{8}"),
    (r"\d{4}\\-\d\d\\-\d\d\\ \d\d:\d\d:\d\d", r"\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d"),
    (r"SANDBOX_PLACEHOLDER_[0-9a-f]{32}", r"SANDBOX_PLACEHOLDER_[0-9a-f]{32}"),
    (r"\d+(\.\d+)?\\? (ms|s|MB|bytes|entries)\b", r"[\\d.]+ \2"),
]


@dataclass
class Step:
    command: str
    shown: str  # the output on the page; "" when it shows none


def steps_of(code: str) -> list[Step]:
    """A block's commands. `> ` continues a command, as in a shell."""
    steps: list[Step] = []
    for line in code.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], ""))
        elif line.startswith("> ") and steps and not steps[-1].shown:
            steps[-1].command += "\n" + line[2:]
        else:
            assert steps, f"a transcript begins with `$ `: {line!r}"
            steps[-1].shown += line + "\n"
    return steps


def pattern(shown: str) -> re.Pattern[str]:
    """What the output must match. `…` stands for anything, on a line of its own for any lines."""
    text = re.escape(shown.strip())
    for varying, expression in _VARYING:
        text = re.sub(varying, expression, text)
    text = re.sub(r"^(\\ )*…$", ".*", text, flags=re.MULTILINE).replace("…", "[^\n]*")
    return re.compile(text.replace(r"\ ", r" +"), re.DOTALL)


def run(step: Step, directory: Path, environment: dict[str, str]) -> tuple[str, int]:
    done = subprocess.run(
        ["bash", "-c", f"{step.command}"],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout, done.returncode
