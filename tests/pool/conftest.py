"""A project and a registry of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandboxes import home

__all__ = ["home"]


@pytest.fixture
def project(home: Path) -> Path:
    """The directory that sandboxes get by default."""
    return home.parent / "project"
