"""Apple's containers for tests: a stand-in for the command, which exists only on a Mac."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.engines.container import cli
from tests.engines import apple_stand_in


@pytest.fixture
def apple(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Mac's command, as far as the engine can tell. Returns the directory with its state."""
    place = tmp_path_factory.mktemp("apple")
    monkeypatch.setattr(cli, "PLACES", (str(place),))
    monkeypatch.setattr(cli, "PLATFORM", "darwin")
    return apple_stand_in.install(place)
