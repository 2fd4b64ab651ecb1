"""pip installs what a project names, and pytest is often named in an extra, or nowhere."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from typing import Any

from sandbox.project_scan.tools import Tool

EXTRAS = ("test", "tests", "testing", "dev")  # the first of these that has pytest is installed too
_PYTEST = re.compile(r"\s*pytest\b(?!-)", re.IGNORECASE)


def with_pytest(tool: Tool, file: str, text: str) -> Tool:
    """The tool with a command that installs pytest as well. `text` is the project's own, and may be anything."""
    if file == "requirements.txt":
        return tool if any(_PYTEST.match(line) for line in text.splitlines()) else _more(tool, " pytest")
    project = _table(_read(text), "project")
    if _has_pytest(project.get("dependencies")):
        return tool
    extras = _table(project, "optional-dependencies")
    name = next((name for name in EXTRAS if _has_pytest(extras.get(name))), None)
    return (
        _more(tool, " pytest")
        if name is None
        else replace(tool, install=tool.install.replace("-e .", f'-e ".[{name}]"'))
    )


def _more(tool: Tool, what: str) -> Tool:
    return replace(tool, install=f"{tool.install[:-1]}{what}'")  # before the quote that ends the shell's command


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _table(data: dict[str, Any], key: str) -> dict[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _has_pytest(listed: object) -> bool:
    return isinstance(listed, list) and any(isinstance(one, str) and _PYTEST.match(one) for one in listed)
