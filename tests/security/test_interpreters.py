"""No interpreter of ours starts with the project on `sys.path`: a `json.py` of a tenant's would run outside."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import sandbox

SOURCE = Path(sandbox.__file__).parent
INSIDE = {  # started behind walls, where the project's own modules are wanted
    "integrations/pytest_plugin.py": "pytest",
    "integrations/jupyter_provisioner.py": "ipykernel_launcher",
}


def starts(tree: ast.AST) -> Iterator[tuple[int, list[object]]]:
    """Lists of words that begin with an interpreter that the program names, and run a module or a text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.List | ast.Tuple) or not node.elts or isinstance(node.elts[0], ast.Constant):
            continue
        words: list[object] = [part.value if isinstance(part, ast.Constant) else None for part in node.elts]
        first = ast.unparse(node.elts[0])
        if any(word in first for word in ("executable", "interpreter", "python")) and {"-m", "-c"} & set(words):
            yield node.lineno, words


def careless(tree: ast.AST) -> list[tuple[int, list[object]]]:
    found = []
    for line, words in starts(tree):
        at = min(words.index(option) for option in ("-m", "-c") if option in words)
        if not {"-I", "-P"} & set(words[1:at]):
            found.append((line, words))
    return found


def test_every_interpreter_that_we_start_outside_leaves_the_project_out_of_its_path() -> None:
    found = []
    seen = 0
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        seen += len(list(starts(tree)))
        found += [(name, line) for line, words in careless(tree) if INSIDE.get(name, "-") not in words]
    assert found == []
    assert seen > 5  # it still recognizes them


def test_a_careless_start_is_found() -> None:
    assert careless(ast.parse("run([sys.executable, '-m', 'sandbox'])"))
    assert not careless(ast.parse("run([sys.executable, '-I', '-m', 'sandbox'])"))
