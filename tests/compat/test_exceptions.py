"""`make compat` excuses nothing that docs/limits.md does not name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_exception_has_a_reason_and_is_named_in_the_limits() -> None:
    limits = (ROOT / "docs" / "limits.md").read_text()
    lines = (ROOT / "tests" / "compat" / "exceptions.txt").read_text().splitlines()
    for line in lines:
        if line.startswith("#"):
            continue
        excused, _, reason = line.partition("  # ")
        suite, who, pattern = excused.split()
        assert suite in ("cpython", "go") and who in ("root", "user", "both") and reason
        named = re.findall(r"test_\w+|Test\w+|os/signal", pattern)
        assert any(one in limits for one in named), line
