"""A virtual machine is an engine like the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.conformance import Conformance


@pytest.fixture(autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One template for all tests: to make one takes a boot."""
    cache = os.environ.get("SANDBOX_CACHE_DIR") or str(tmp_path_factory.getbasetemp() / "cache")
    monkeypatch.setenv("SANDBOX_CACHE_DIR", cache)
    yield


class TestQemu(Conformance):
    engine = "qemu"


def test_a_tenant_has_a_kernel_of_its_own(tmp_path: Path) -> None:
    from sandbox import Sandbox

    with Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path)}}) as sandbox:
        assert sandbox.exec("cat /proc/sys/kernel/random/boot_id").stdout.strip() != Path(
            "/proc/sys/kernel/random/boot_id"
        ).read_text().strip()
