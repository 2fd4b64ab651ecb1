"""Every message that people read, collected from the sources: `_()` calls, summaries of commands, errors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import sandbox

SOURCE = Path(sandbox.__file__).parent

# argparse's own words, as far as a person gets to see them.
ARGPARSE = (
    "usage: ", "options", "positional arguments", "show this help message and exit", "%(prog)s: error: %(message)s\n",
    "unrecognized arguments: %s", "the following arguments are required: %s", "expected one argument",
    "invalid choice: %(value)r (choose from %(choices)s)", "not allowed with argument %s",
    "one of the arguments %s is required", "expected at least one argument", "ignored explicit argument %r",
    "invalid %(type)s value: %(value)r",
)  # fmt: skip


def messages() -> dict[str, str]:
    """Message -> where it is."""
    found = dict.fromkeys(ARGPARSE, "argparse")
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for message, line in _in(tree, file):
            found.setdefault(message, f"{file.relative_to(SOURCE)}:{line}")
    return found


def _in(tree: ast.AST, file: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_":
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value, node.lineno
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _is_ours(node.exc.func):
            for argument in node.exc.args:
                template = template_of(argument)
                if template:
                    yield template, node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Decision":
            template = template_of(node.args[2]) if len(node.args) == 3 else None
            if template:
                yield template, node.lineno
    if file.parts[-2:] == ("engines", "doctor.py"):
        yield from _findings(tree)
    if file.name == "main.py":
        for node in ast.walk(tree):
            if isinstance(node, ast.Tuple) and len(node.elts) == 2:
                first, second = node.elts
                texts = [one.value for one in (first, second) if isinstance(one, ast.Constant)]
                if len(texts) == 2 and isinstance(texts[1], str) and " " in texts[1]:
                    yield texts[1], node.lineno


def _findings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """What `sandbox doctor` finds: every text of its module but docstrings and the insides of f-strings."""
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
    }
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    inner -= {id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in documentation | inner:
            template = template_of(node)
            if template and not template.startswith("sysctl "):
                yield template, node.lineno


OURS = ("ConfigError", "SandboxError", "Denied", "EngineUnavailable", "WallError", "LimitUnavailable", "CommandError",
        "SandboxClosed", "NotFound")  # fmt: skip  # GuestError is a bug or an attack: for whoever reads logs


def _is_ours(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and function.id in OURS


def template_of(node: ast.expr) -> str | None:
    """A message's text with `{0}`, `{1}` … where values stand."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if " " in node.value else None
    if isinstance(node, ast.JoinedStr):
        parts, count = "", 0
        for piece in node.values:
            if isinstance(piece, ast.Constant):
                parts += str(piece.value)
            else:
                parts += f"{{v{count}}}"
                count += 1
        return parts if " " in parts else None
    return None
