"""Firecracker is an engine like the others. What stands in its place here speaks its API and runs QEMU."""

from __future__ import annotations

import os
import zipapp
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.engines.firecracker import engine, machine
from tests.engines.conformance import Conformance

pytestmark = [pytest.mark.vm, pytest.mark.root]  # /dev/net/tun is root's on this machine

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in as one file, as Firecracker is."""
    place = tmp_path_factory.mktemp("firecracker")
    source = place / "source"
    source.mkdir()
    (source / "__main__.py").write_text((HERE / "firecracker_stand_in.py").read_text())
    (source / "firecracker_vsock.py").write_text((HERE / "firecracker_vsock.py").read_text())
    zipapp.create_archive(source, place / "firecracker", interpreter="/usr/bin/python3")
    os.chmod(place / "firecracker", 0o755)
    return place / "firecracker"


@pytest.fixture(autouse=True)
def stand_in(
    program: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """One template for all tests: to make one takes a boot. QEMU writes files and shares memory, which Firecracker
    need not: the stand-in is not held to what Firecracker is held to."""
    cache = os.environ.get("SANDBOX_CACHE_DIR") or str(tmp_path_factory.getbasetemp() / "cache")
    monkeypatch.setenv("SANDBOX_CACHE_DIR", cache)
    monkeypatch.setattr(engine, "PLACES", (str(program),))
    monkeypatch.setattr(engine, "why_not", lambda: None)
    monkeypatch.setattr(machine, "CONFINED", False)
    yield


class TestFirecracker(Conformance):
    engine = "firecracker"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    (tmp_path / ".env").write_text("TOKEN=hidden")
    with Sandbox({"engine": "firecracker", "filesystem": {"root": str(tmp_path)}}) as made:
        yield made


def test_a_tenant_has_a_kernel_of_its_own_and_the_projects_files(sandbox: Sandbox, tmp_path: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert sandbox.exec(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip() not in ("", boot)
    result = sandbox.exec("cat .env; echo made > out")
    assert "hidden" not in result.stdout
    assert (tmp_path / "out").read_text() == "made\n"


def test_every_connection_ends_at_the_gate_by_way_of_the_rooms_card(sandbox: Sandbox) -> None:
    assert "is not allowed" in sandbox.exec("curl -sS http://example.org/").stdout
    assert "is not allowed" in sandbox.exec("curl -sS http://192.0.2.77/").stdout


def test_a_lent_port_is_reached(tmp_path: Path) -> None:
    import socket
    from threading import Thread

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def greet() -> None:
            with server.accept()[0] as connection:
                connection.sendall(b"the host's")

        Thread(target=greet, daemon=True).start()
        config = {"filesystem": {"root": str(tmp_path)}, "network": {"localhost_ports": [port]}}
        with Sandbox({"engine": "firecracker", **config}) as made:
            ask = f"import socket; print(socket.create_connection(('127.0.0.1', {port}), 20).recv(99).decode())"
            assert made.exec(["/usr/bin/python3", "-c", ask]).stdout == "the host's\n"


def test_neither_the_template_nor_firecrackers_sockets_can_be_opened(sandbox: Sandbox) -> None:
    script = "for f in /.machine/memory /.machine/kernel /.machine-run/api.sock; do cat $f && echo read; done"
    assert sandbox.exec(f"({script}) 2>/dev/null; ls /.machine-run 2>/dev/null").stdout == ""
