"""docs/architecture.md draws what is there: every package is in it, and every file that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sandbox"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
FILES = sorted(set(re.findall(r"`([\w/]+\.(?:py|c))`", PAGE)))


def test_every_package_is_in_the_page() -> None:
    packages = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
    assert len(packages) > 20
    assert [name for name in packages if f"{name}/" not in PAGE] == []


def test_everything_in_the_picture_has_a_layer() -> None:
    """In pyproject.toml, whose order import-linter holds."""
    layers = re.findall(r"\w+", (ROOT / "pyproject.toml").read_text().split("layers = [")[1].split("]")[0])
    picture = PAGE.split("```")[1]
    drawn = [
        name.removesuffix("/").removesuffix(".py") for name in re.findall(r"(?<=[ ])[a-z_0-9]+(?:/|\.py)", picture)
    ]
    assert len(drawn) > 30 and [name for name in drawn if name not in layers] == []


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_it_names_exists(name: str) -> None:
    assert (SOURCE / name).exists() or (ROOT / name).exists()
