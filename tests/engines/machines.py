"""Virtual machines for tests: one cache of templates for a whole run, because to make one takes a boot."""

from __future__ import annotations

import os

import pytest

from sandbox.engines.machine.kernel import find_kernel
from sandbox.engines.qemu.command import find_qemu
from sandbox.errors import EngineUnavailable


@pytest.fixture
def machines(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that starts virtual machines. All workers of a run share their templates."""
    if os.environ.get("SANDBOX_IN_A_MACHINE"):
        pytest.skip("this is a virtual machine")  # tests/kernels/inside
    try:
        find_qemu(), find_kernel()
    except EngineUnavailable as problem:
        pytest.skip(str(problem))
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    monkeypatch.setenv("SANDBOX_CACHE_DIR", os.environ.get("SANDBOX_CACHE_DIR") or str(base / "cache"))
