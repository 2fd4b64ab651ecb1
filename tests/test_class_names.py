"""Each class has a name of its own, so that a name in a traceback, a type or a conversation means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "sandbox"

# Both are public, and both are what such a thing is called everywhere.
PUBLIC = {"FileInfo": "of a file inside (`stat`), and of a file that a VFS provider serves"}
# A message of the wire is named after its method, a section after its key, and a protocol may describe a class by that
# class's name. A program that runs by itself inside the sandbox shares nothing with the package.
NAMED_AFTER_ANOTHER = {"Struct", "msgspec.Struct", "Section", "Protocol", "_Asked", "_Command"}
ALONE = {"sessions/drivers/plain_python.py"}


def _may_repeat(node: ast.ClassDef) -> bool:
    return node.name.startswith("_") or bool(NAMED_AFTER_ANOTHER & {ast.unparse(base) for base in node.bases})


def _names() -> dict[str, list[str]]:
    found = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        where = str(path.relative_to(SOURCE))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not _may_repeat(node) and where not in ALONE:
                found[node.name].append(where)
    return found


def test_no_two_classes_have_the_same_name() -> None:
    names = _names()
    assert len(names) > 300  # the walk did find them
    assert {name: where for name, where in names.items() if len(where) > 1 and name not in PUBLIC} == {}


def test_the_exceptions_are_still_needed() -> None:
    names = _names()
    assert [name for name in PUBLIC if len(names[name]) < 2] == []
