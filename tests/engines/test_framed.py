"""An engine of our own, over frames: everything that every engine promises holds for it, too."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import ConfigError, Sandbox
from tests.engines.conformance import Conformance
from tests.engines.framed_engine import FramedEngine


@pytest.fixture(autouse=True)
def framed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sandbox.sandbox.choose", lambda config: FramedEngine())
    yield


class TestFramed(Conformance):
    engine = "none"

    def make(self, project: Path, **more: object) -> Sandbox:
        sandbox = super().make(project, **more)
        assert sandbox.engine == "framed"
        return sandbox


def test_a_new_engine_takes_sixty_lines_and_nothing_in_the_package_knows_it() -> None:
    """The suite above runs over it: docs/architecture.md shows it as the smallest engine."""
    source = Path(inspect.getfile(FramedEngine)).read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60
    package = Path(inspect.getfile(Sandbox)).parent
    assert [path for path in package.rglob("*.py") if "FramedEngine" in path.read_text(encoding="utf-8")] == []


def test_what_needs_descriptors_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"vfs\.file_events"):
        Sandbox({"engine": "none", "filesystem": {"root": str(tmp_path)}, "vfs": {"file_events": True}})
