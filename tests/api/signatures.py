"""The public surface as text: `python -m tests.api.signatures > tests/api/signatures.txt` pins it."""

from __future__ import annotations

import inspect
from typing import Any

import sandbox
from sandbox.commands import Commands
from sandbox.connecting import Connect


def surface() -> str:
    """One line for each exported name, and for each public member of an exported class."""
    found: list[str] = []
    for name in sandbox.__all__:
        public = getattr(sandbox, name)
        if not inspect.isclass(public):
            found.append(f"{name}{inspect.signature(public)}")
            continue
        bases = ", ".join(base.__name__ for base in public.__bases__ if base.__name__ in sandbox.__all__)
        found.append(f"class {name}({bases})")
        if issubclass(public, Exception) and "__init__" not in vars(public):
            continue
        found += [f"  {line}" for line in members(public)]
    return "\n".join(found) + "\n"


def members(kind: type) -> list[str]:
    """The constructor, methods and properties that a class of ours has, its fields included."""
    found = []
    if "__init__" in vars(kind) and not getattr(kind, "_is_protocol", False):
        found.append(f"__init__{inspect.signature(kind.__init__)}")  # type: ignore[misc]
    for name in sorted(public_names(kind)):
        found.append(described(name, inspect.getattr_static(kind, name)))
    return found


def public_names(kind: type) -> set[str]:
    """What of it is public and ours."""
    ours = [one for one in kind.__mro__ if one.__module__.startswith("sandbox")]
    return {name for one in ours for name in vars(one) if not name.startswith("_")}


def described(name: str, value: Any) -> str:
    if isinstance(value, staticmethod | classmethod):
        return f"{name}{inspect.signature(value.__func__)}"
    if inspect.isfunction(value):
        return f"{'async ' * inspect.iscoroutinefunction(value)}{name}{inspect.signature(value)}"
    if isinstance(value, Connect):
        return f"{name}{inspect.signature(value.__get__(None, type))}\n  {name}{inspect.signature(Commands._join)}"
    if isinstance(value, property) and value.fget is not None:
        return f"{name}: {inspect.signature(value.fget).return_annotation}"
    return name


if __name__ == "__main__":
    print(surface(), end="")
