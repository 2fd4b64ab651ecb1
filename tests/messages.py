"""Every message that people read, collected from the sources: `_()`, `Message()`, errors, decisions, commands."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import sandbox

SOURCE = Path(sandbox.__file__).parent

# argparse's own messages, as far as a person gets to see them.
ARGPARSE = (
    "usage: ", "options", "positional arguments", "show this help message and exit", "%(prog)s: error: %(message)s\n",
    "unrecognized arguments: %s", "the following arguments are required: %s", "expected one argument",
    "invalid choice: %(value)r (choose from %(choices)s)", "not allowed with argument %s",
    "one of the arguments %s is required", "expected at least one argument", "ignored explicit argument %r",
    "invalid %(type)s value: %(value)r",
)  # fmt: skip

# What takes a message -> the positions of its messages, and the keywords that are not values of the message.
TAKES: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "Message": ((0,), ()),
    "SandboxError": ((0,), ()),
    "ConfigError": ((0,), ("path", "file", "line")),
    "Missing": ((0,), ("path", "file", "line")),
    "Denied": ((1,), ()),
    "EngineUnavailable": ((0,), ()),
    "WallError": ((0,), ()),
    "LimitUnavailable": ((0,), ()),
    "InvalidArgument": ((0,), ()),
    "CommandError": ((0,), ("exit_code", "result")),
    "SandboxClosed": ((0,), ()),
    "SandboxLost": ((0,), ()),
    "ImageError": ((0,), ()),
    "AgentRefused": ((0,), ()),
    "ErrorStatus": ((0,), ("headers",)),
    "_Wrong": ((0,), ()),
    "NotFound": ((0,), ()),
    "GuestError": ((0,), ()),
    "SigningFailed": ((0,), ()),
    "UsageError": ((0,), ()),
    "Fault": ((1,), ("data",)),
    "Decision": ((2,), ()),
    "Finding": ((0, 2, 3), ("needed",)),
    "Option": ((1,), ("value", "short", "number", "many", "default")),
}
# Raised in config/ and policy/ with a message that becomes part of one of the above.
INNER = ("ValueError", "InvalidHost", "Unclear")
# A bug or an attack: for whoever reads logs.
UNTRANSLATED = ("GuestError",)


@dataclass
class Site:
    """One place that hands a message on."""

    call: str
    message: ast.expr
    values: set[str]
    place: str

    @property
    def template(self) -> str | None:
        """The template, when it is written there."""
        text = self.message.value if isinstance(self.message, ast.Constant) else None
        return text if isinstance(text, str) else None

    @property
    def composed(self) -> bool:
        """Whether the text is put together there, so that nobody could translate it."""
        if isinstance(self.message, ast.Call) and isinstance(self.message.func, ast.Attribute):
            return self.message.func.attr in ("format", "join")
        if isinstance(self.message, ast.BinOp):
            return True
        return isinstance(self.message, ast.JoinedStr)


@cache
def sites() -> list[Site]:
    """Every place in the package where a message is handed on."""
    return [site for file in sorted(SOURCE.rglob("*.py")) for site in _sites(file)]


def _sites(file: Path) -> Iterator[Site]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(getattr(node.func, "value", None), ast.Name) and node.func.value.id == "pytest":  # type: ignore[attr-defined]
            continue  # pytest's own errors, in the language it speaks
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        inner = name in INNER and file.relative_to(SOURCE).parts[0] in ("config", "policy")
        positions, own = TAKES.get(name, ((0,), ()) if inner else ((), ()))
        for at in positions:
            if at < len(node.args):
                values = {one.arg for one in node.keywords if one.arg and one.arg not in own}
                for message in _choices(node.args[at]):
                    yield Site(name, message, values, f"{file.relative_to(SOURCE)}:{node.lineno}")


def _choices(message: ast.expr) -> list[ast.expr]:
    """Both sides of a conditional expression and of `or`."""
    if isinstance(message, ast.IfExp):
        return [*_choices(message.body), *_choices(message.orelse)]
    return message.values if isinstance(message, ast.BoolOp) else [message]


def fields(template: str) -> set[str]:
    """The fields of a template with their conversions: {"name!r", "count"}."""
    return {
        (name or "") + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
        for _, name, spec, conversion in string.Formatter().parse(template)
        if name is not None
    }


@cache
def messages() -> dict[str, str]:
    """Message -> where it is."""
    found = dict.fromkeys(ARGPARSE, "argparse")
    for site in sites():
        if site.template and (" " in site.template or site.call == "Message") and site.call not in UNTRANSLATED:
            found.setdefault(site.template, site.place)
    for file in sorted(SOURCE.rglob("*.py")):
        for message, line in _translated_in_place(file):
            found.setdefault(message, f"{file.relative_to(SOURCE)}:{line}")
    return found


def _translated_in_place(file: Path) -> Iterator[tuple[str, int]]:
    """What is given to `_()`, and the one line about each command."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_":
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value, node.lineno
        if file.name == "command_table.py" and isinstance(node, ast.Tuple) and len(node.elts) == 2:
            summary = node.elts[1]
            if isinstance(summary, ast.Constant) and isinstance(summary.value, str) and " " in summary.value:
                yield summary.value, node.lineno
