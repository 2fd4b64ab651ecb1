"""The guest program, built once, and a place made with it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.guest.driver import Place, launch

ROOT = Path(__file__).resolve().parents[2]


def _build_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guest_build", ROOT / "guest" / "build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guest for this machine: the package's own when it is up to date, else a fresh one."""
    script = _build_script()
    packaged = ROOT / "src" / "sandbox" / "guest" / "bin" / f"guest-{script.machine()}"
    if script.is_fresh(packaged, script.sources()["guest"]):
        return packaged
    outdir = tmp_path_factory.mktemp("guest")
    return Path(script.build(outdir, script.machine(), "guest"))


@pytest.fixture
def place(guest: Path) -> Iterator[Place]:
    """A place without network, with Landlock, as most are."""
    with launch(guest) as made:
        ready = made.setup(uid=1000, gid=1000, writable=[b"/tmp", b"/room", b"/dev"])
        assert ready["t"] == "ready", ready
        yield made
