"""A function does one thing, and a class is one idea: what outgrows a screen or two is split, or says here why not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LONGEST_FUNCTION = 40  # lines, with its signature and docstring
LONGEST_CLASS = 250

#: Classes that are longer, how long they may be, and why. Shorten the number when the class gets shorter.
LONGER = {
    "src/sandbox/aio.py: AsyncSandbox": (300, "the same methods again, each one await of a thread"),
    "src/sandbox/network/gate_thread.py: GateThread": (270, "the gate's whole life, from the plan on, under one lock"),
    "src/sandbox/asks/pending.py: Asks": (290, "a question's life from asking to its answer, under one lock"),
    "src/sandbox/manager/manager.py: SandboxManager": (325, "one state machine; its states are moved under one lock"),
}


def definitions(kinds: type[ast.AST] | tuple[type[ast.AST], ...]) -> Iterator[tuple[str, int]]:
    for path in sorted((ROOT / "src/sandbox").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kinds):
                assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                yield f"{path.relative_to(ROOT)}: {node.name}", (node.end_lineno or 0) - node.lineno + 1


def c_functions() -> Iterator[tuple[str, int]]:
    """In our C the braces of a function, and only those, are alone in the first column."""
    for path in sorted((ROOT / "guest").rglob("*.c")):
        begins = 0
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line == "{":
                begins = number - 1
            elif line == "}" and begins:
                yield f"{path.relative_to(ROOT)}:{begins}", number - begins + 1
                begins = 0


def test_no_function_is_longer_than_a_screen() -> None:
    found = [*definitions((ast.FunctionDef, ast.AsyncFunctionDef)), *c_functions()]
    assert len(found) > 3000
    assert {name: lines for name, lines in found if lines > LONGEST_FUNCTION} == {}


def test_a_class_that_is_longer_than_others_says_why() -> None:
    allowed = {name: most for name, (most, _) in LONGER.items()}
    found = dict(definitions(ast.ClassDef))
    assert {name: lines for name, lines in found.items() if lines > allowed.get(name, LONGEST_CLASS)} == {}


@pytest.mark.parametrize("name", LONGER)
def test_an_exception_is_still_needed(name: str) -> None:
    assert dict(definitions(ast.ClassDef)).get(name, 0) > LONGEST_CLASS
