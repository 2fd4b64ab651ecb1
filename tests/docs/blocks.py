"""The code blocks of the documentation, each with what its page says about running it.

A page can put a comment before a block, which readers do not see. Each line is a key and a value:

    <!-- test
    setup: mkdir src; echo 1 > src/a.py
    skip: starts a graphical editor
    -->

`setup` is a shell command, run in the project before the block. `config` is YAML, added to the user's configuration.
`before` and `after` are lines of Python around the block. `as` says what a JSON block is. `status: any` is for commands
that may fail. `serves` is for a command that runs until it is ended, which happens when it has printed what the page
shows; its value is words to add to the command, and `types` is what is typed on its terminal when it asks. With
`server: yes` a server runs meanwhile, and `TOKEN` is a token for it. `skip` gives the reason why a block is not run.
`needs` names what it cannot run without: tests/integrations runs those that need a framework, tests/engines those that
need a container engine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(
    r"^(?:<!-- test\n(?P<notes>.*?)^-->\n\n?)?^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_KEYS = {"setup", "config", "before", "after", "as", "status", "serves", "types", "server", "skip", "needs"}


@dataclass
class Block:
    page: str
    line: int
    language: str
    code: str
    notes: dict[str, list[str]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"

    def note(self, key: str, default: str = "") -> str:
        return "\n".join(self.notes.get(key, [])) or default


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        notes: dict[str, list[str]] = {}
        for line in (match["notes"] or "").splitlines():
            key, _, value = line.partition(": ")
            assert key in _KEYS, f"{page.name}: no such note for a block: {line!r}"
            notes.setdefault(key, []).append(value)
        number = text.count("\n", 0, match.start("language")) + 1
        indent = len(match["indent"])
        code = "".join(line[indent:] for line in match["code"].splitlines(keepends=True))
        found.append(Block(str(page.relative_to(ROOT)), number, match["language"], code, notes))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
