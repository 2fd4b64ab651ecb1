"""OCI runtimes with a kernel of their own, of Debian: they build no such sandbox, and say so."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.errors import WallError
from tests.engines.container_engines import Docker
from tests.patience import until

pytestmark = [pytest.mark.containers, pytest.mark.root]

# As it is, it refuses a container without a network; with these it starts one.
STARTS = ["--network=none", "--fsgofer-host-uds", "--platform=ptrace", "--ignore-cgroups"]


@pytest.fixture
def gvisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Docker]:
    runsc = "/usr/bin/runsc"
    runtimes = {"runsc": {"path": runsc}, "gvisor": {"path": runsc, "runtimeArgs": STARTS}}
    (tmp_path / "daemon.json").write_text(json.dumps({"runtimes": runtimes}))
    daemon = Docker("--config-file", str(tmp_path / "daemon.json"))
    monkeypatch.setenv("DOCKER_HOST", daemon.host)
    yield daemon
    daemon.close()


@pytest.mark.parametrize(("runtime", "says"), [("runsc", "cannot run with network"), ("gvisor", "kernel of its own")])
def test_gvisor_is_refused_with_its_reason_and_leaves_nothing(
    gvisor: Docker, tmp_path: Path, runtime: str, says: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with pytest.raises(WallError, match=says):
        Sandbox({"engine": "docker", "runtime": runtime, "filesystem": {"root": str(project)}})
    left = subprocess.run(["docker", "-H", gvisor.host, "ps", "-aq"], capture_output=True, text=True, check=True)
    assert left.stdout == ""
    gvisor.close()
    until(lambda: processes_of(gvisor) == [])


def processes_of(daemon: Docker) -> list[str]:
    """The command lines that name a place of the daemon's: its own, and those of containers' shims and runtimes."""
    return [line for line in map(command_line, Path("/proc").glob("[0-9]*")) if daemon.directory in line]


def command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # it has just ended
        return ""
