"""A virtual machine is an engine like the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.engines.conformance import Conformance

pytestmark = pytest.mark.vm


@pytest.fixture(autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One template for all tests: to make one takes a boot."""
    cache = os.environ.get("SANDBOX_CACHE_DIR") or str(tmp_path_factory.getbasetemp() / "cache")
    monkeypatch.setenv("SANDBOX_CACHE_DIR", cache)
    yield


class TestQemu(Conformance):
    engine = "qemu"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    (tmp_path / ".env").write_text("TOKEN=hidden")
    with Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path)}}) as made:
        yield made


def test_a_tenant_has_a_kernel_of_its_own(sandbox: Sandbox) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert sandbox.exec(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip() not in ("", boot)


def test_a_blocked_file_is_blocked_in_the_machine_too(sandbox: Sandbox) -> None:
    result = sandbox.exec(["cat", ".env"])
    assert (result.exit_code, result.stdout) == (1, "")


def test_every_connection_ends_at_the_gate(sandbox: Sandbox) -> None:
    assert "is not allowed" in sandbox.exec("curl -sS http://example.org/").stdout


def test_neither_the_template_nor_the_rooms_processes_can_be_opened(sandbox: Sandbox) -> None:
    script = "for f in /.machine/ram /.machine/kernel; do cat $f && echo read; echo x >> $f && echo changed; done"
    assert sandbox.exec(f"({script}) 2>/dev/null").stdout == ""
    assert sandbox.exec("cat /proc/[0-9]*/comm").stdout.count("qemu") == 0
