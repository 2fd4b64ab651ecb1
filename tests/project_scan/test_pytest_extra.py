"""The command that `sandbox init` proposes to install a project installs what its tests need."""

from __future__ import annotations

import shlex

import pytest

from sandbox.project_scan.pytest_extra import with_pytest
from sandbox.project_scan.tools import TOOLS

PIP = {file: tool for tool in TOOLS if tool.name == "pip" for file in tool.files}


@pytest.mark.parametrize(
    ("file", "text", "installs"),
    [
        ("pyproject.toml", '[project]\ndependencies = ["pytest>=8"]', "-e ."),
        ("pyproject.toml", '[project]\n[project.optional-dependencies]\ntest = ["pytest"]', '-e ".[test]"'),
        ("pyproject.toml", '[project.optional-dependencies]\ndev = ["ruff", "pytest ; x"]', '-e ".[dev]"'),
        ("pyproject.toml", '[project.optional-dependencies]\ntest = ["pytest-cov"]', "-e . pytest"),
        ("pyproject.toml", "[project]\nname = 'a'", "-e . pytest"),
        ("pyproject.toml", "no = toml [", "-e . pytest"),
        ("pyproject.toml", "project = 1", "-e . pytest"),
        ("setup.py", "", "-e . pytest"),
        ("requirements.txt", "six\npytest==8", "-r requirements.txt"),
        ("requirements.txt", "six\npytest-cov", "-r requirements.txt pytest"),
    ],
)
def test_pytest_is_installed_with_the_project(file: str, text: str, installs: str) -> None:
    words = shlex.split(with_pytest(PIP[file], file, text).install)
    assert words == ["sh", "-c", f"python3 -m venv .venv && .venv/bin/pip install {installs}"]
