"""A store of the test's own, and one with a small image that whole modules share."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.images import manage
from sandbox.images.importing import import_path
from tests.images import making

SAID = {
    "Entrypoint": ["/usr/bin/env", "GREETED=yes"],
    "Cmd": ["sh", "-c", "echo from the image: $GREETED $OWN; pwd"],
    "Env": ["OWN=value", "PATH=/usr/bin"],
    "User": "web",
    "WorkingDir": "/srv/app",
}


@pytest.fixture
def empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store."""
    place = tmp_path / "cache"
    monkeypatch.setenv("SANDBOX_CACHE_DIR", str(place))
    return place / "images"


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with `plain`, a shell and a few programs, and `said`, the same with a configuration. Read it only."""
    place = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDBOX_CACHE_DIR", str(place))
        manage.name(import_path(str(making.layout(place / "plain", [making.system()]))), "plain")
        above = making.tar([making.directory("srv"), making.directory("srv/app")])
        manage.name(import_path(str(making.layout(place / "said", [making.system(), above], SAID))), "said")
    return place


@pytest.fixture
def shared(filled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That store."""
    monkeypatch.setenv("SANDBOX_CACHE_DIR", str(filled))
    return filled / "images"
