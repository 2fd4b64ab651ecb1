"""One refusal, one text: the words of a rule's refusal are written in one place, so that they cannot drift apart."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "sandbox"
PACKAGES = ("asks", "guards", "layout", "network", "policy", "signing", "vfs")
#: What refuses, and which of its arguments is the text.
REFUSALS = {"Decision": 2, "Denied": 1, "WallError": 0, "NotFound": 0, "BadMessage": 0}


def test_the_text_of_a_refusal_is_in_one_place() -> None:
    places = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                    continue
                position = REFUSALS.get(node.func.id, len(node.args))
                if node.func.id == "Decision" and ast.unparse(node.args[0]) == "True":
                    continue
                if position < len(node.args) and isinstance(text := node.args[position], ast.Constant):
                    places[text.value].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert len(places) > 80  # the walk did find them
    assert {text: where for text, where in places.items() if len(where) > 1} == {}
