"""docs/attacks.md names a test for each attack: those tests are there, and so are the places it refers to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "attacks.md").read_text()


def test_every_test_it_names_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 80
    assert [one for one in named if f"def {one[1]}(" not in (ROOT / "tests" / one[0]).read_text()] == []


def test_every_finding_of_the_attack_of_september_is_held_by_a_test() -> None:
    counts = {"A": 4, "B": 4, "C": 7, "D": 6, "E": 7, "F": 10, "G": 2}
    section = PAGE.partition("## What the attack of September found\n")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line[:1] == "|"]
    found = {row[0]: row[2] for row in rows if re.fullmatch(r"[A-G]\d+", row[0])}
    assert list(found) == [f"{letter}{number + 1}" for letter, count in counts.items() for number in range(count)]
    for number, tests in found.items():
        for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", tests):
            assert name in defined(file), f"{number}: there is no {name} in {file}"
        assert re.fullmatch(r"`[\w/]+\.py::\w+`(, `[\w/]+\.py::\w+`)*", tests), number


def defined(file: str) -> set[str]:
    """The tests of a file that pytest would collect."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {one.name for one in tree.body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")}


def test_every_attack_has_a_proof_or_says_that_it_is_not_stopped() -> None:
    headings = ("| attack", "| found")
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(headings)]
    assert [line for line in rows if ".py::" not in line and "**not stopped**" not in line] == []


def test_every_section_it_refers_to_is_there() -> None:
    limits = (ROOT / "docs" / "limits.md").read_text()
    headings = re.findall(r"^##+ (.*)", limits, re.MULTILINE)
    sections = {heading.lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"limits\.md#([\w-]+)", PAGE)) <= sections
