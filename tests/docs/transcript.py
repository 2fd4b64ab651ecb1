"""Terminal transcripts in the documentation: `$ command` lines, each with the output that the page shows."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 120  # seconds

# What differs from run to run, and what it looks like.
_VARYING = [
    (r"vm\\-[0-9a-f]{8}", r"vm-[0-9a-f]{8}"),
    (r"\d{4}\\-\d\d\\-\d\d\\ \d\d:\d\d:\d\d", r"\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d"),
    (r"SANDBOX_PLACEHOLDER_[0-9a-f]{32}", r"SANDBOX_PLACEHOLDER_[0-9a-f]{32}"),
    (r"\d+(\.\d+)?\\? (ms|s|MB|bytes|entries)\b", r"[\\d.]+ \2"),
    (r"127\\.0\\.0\\.1:7777", r"127\\.0\\.0\\.1:\\d+"),
    (r"0x[0-9a-f]{40}", r"0x[0-9a-fA-F]{40}"),
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
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout, done.returncode


def serve(step: Step, words: str, typed: str, directory: Path, environment: dict[str, str]) -> str:
    """Runs a command on a terminal, with `words` added, until it has printed what the page shows; then ends it.

    What is `typed` answers its first question. Returns what it printed.
    """
    ours, its = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", "bash", "-c", f"exec {step.command} {words}"],
        cwd=directory, env=environment, stdin=its, stdout=its, stderr=its, start_new_session=True,
    )  # fmt: skip
    os.close(its)
    wanted, output = pattern(step.shown), ""
    try:
        while not wanted.search(output) and select.select([ours], [], [], PATIENCE)[0]:
            try:
                output = re.sub(" *\r\n", "\n", output + os.read(ours, 4096).decode())
            except OSError:  # it has ended
                break
            if typed and output.endswith((": ", "? ")):
                os.write(ours, f"{typed}\n".encode())
                typed = ""
    finally:
        os.close(ours)  # which hangs up
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return output
