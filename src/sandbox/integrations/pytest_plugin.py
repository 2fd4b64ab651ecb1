"""A pytest plugin: the fixtures `sandbox`, `sandbox_config` and `sandbox_factory`. See docs/integrations/pytest.md.

pytest loads this wherever we are installed, so no other module of this package is imported before a test asks for a
sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox

MARK = "sandbox"


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known to `--strict-markers`."""
    config.addinivalue_line("markers", f"{MARK}(config): what the `sandbox` fixture of this test is configured with")


@pytest.fixture
def sandbox_config() -> Mapping[str, Any]:
    """The configuration of every sandbox here: override it in a conftest.py, a module or a class."""
    return {}


@pytest.fixture
def sandbox_factory(
    request: pytest.FixtureRequest, tmp_path: Path, sandbox_config: Mapping[str, Any]
) -> Iterator[Callable[..., Sandbox]]:
    """`sandbox_factory(config)` starts another sandbox; all of them end with the test.

    Its project is a new directory in `tmp_path`, unless `filesystem.root` names one.
    """
    marks = [mark.args[0] for mark in request.node.iter_markers(MARK) if mark.args]
    with ExitStack() as all_of_them:

        def start(config: Mapping[str, Any] | None = None) -> Sandbox:
            from sandbox.sandbox import Sandbox

            whole: dict[str, Any] = {}
            for part in (sandbox_config, *reversed(marks), config or {}):  # the nearest mark comes first in pytest
                whole = merged(whole, part)
            if "root" not in whole.get("filesystem", {}):
                whole = merged(whole, {"filesystem": {"root": str(_new_directory(tmp_path))}})
            return all_of_them.enter_context(Sandbox(whole))

        yield start


@pytest.fixture
def sandbox(sandbox_factory: Callable[..., Sandbox]) -> Sandbox:
    """A sandbox of this test's own, around an empty directory: `sandbox.exec(...)`, `sandbox.python()` …"""
    return sandbox_factory()


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both: mappings are merged, everything else is replaced, as between the layers of a configuration."""
    whole = dict(under)
    for key, value in over.items():
        below = whole.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        whole[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return whole


def _new_directory(place: Path) -> Path:
    number = 0
    while True:
        made = place / f"sandbox-{number}"
        try:
            made.mkdir()
        except FileExistsError:
            number += 1
        else:
            return made
