"""A real agent's start through its profile, beside the agent alone. `scripts/setup dev` installs it into .agents/."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Bench, Failed, Row, command
from bench.walls import budget, timed

CLAUDE = Path(__file__).parents[1] / ".agents/claude/node_modules/.bin"


def rows(bench: Bench) -> Iterator[Row]:
    """`claude --version`, whole commands."""
    bench.log("agents: claude --version")
    env = {"PATH": f"{CLAUDE}:{os.environ['PATH']}"}
    median = bench.medians(
        {
            "alone": command([CLAUDE / "claude", "--version"], env),
            "ours": command([bench.python.parent / "sandbox", "claude", "--version"], env),
        }
    )
    alone, ours = median["alone"], median["ours"]
    yield timed("`claude --version`, alone", alone, alone, "itself")
    yield timed("**`sandbox claude --version`**", ours, alone, "alone")
    most = alone if isinstance(alone, Failed) else 1.15 * alone + 60
    yield budget("… against claude alone", ours, most, 1, "1.15 × alone + 60 ms", "of that")
