"""docs/attacks.md names a test for each attack: those tests are there, and so are the places it refers to."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "attacks.md").read_text()


def test_every_test_it_names_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 80
    assert [one for one in named if f"def {one[1]}(" not in (ROOT / "tests" / one[0]).read_text()] == []


def test_every_attack_has_a_proof_or_says_that_it_is_not_stopped() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| attack")]
    assert [line for line in rows if ".py::" not in line and "**not stopped**" not in line] == []


def test_every_section_it_refers_to_is_there() -> None:
    limits = (ROOT / "docs" / "limits.md").read_text()
    sections = {line.removeprefix("## ").lower().replace(" ", "-") for line in limits.splitlines() if line[:3] == "## "}
    assert set(re.findall(r"limits\.md#([\w-]+)", PAGE)) <= sections
