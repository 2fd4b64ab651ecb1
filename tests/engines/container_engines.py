"""Docker and Podman as Debian has them, started for the tests with places of their own: nothing is the machine's."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCKERD = (
    *(
        "--iptables=false",
        "--ip6tables=false",
        "--ip-forward=false",
        "--bridge=none",
    ),  # the host's network stays as it is
    *("--log-level", "error"),
)
PATIENCE = 60  # seconds


class Docker:
    """A daemon with data, state and socket in a directory of its own. It ends with the process that started it."""

    def __init__(self, *more: str) -> None:
        self.directory = tempfile.mkdtemp(prefix="docker-", dir="/tmp")
        os.chmod(self.directory, 0o711)
        self.host = f"unix://{self.directory}/socket"
        self._log = open(f"{self.directory}/log", "w+b")  # noqa: SIM115 - closed in `close`
        words = ["dockerd", "-H", self.host, "--data-root", f"{self.directory}/data"]
        words += ["--exec-root", f"{self.directory}/exec", "--pidfile", f"{self.directory}/pid", *DOCKERD, *more]
        path = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *words], stdout=self._log, stderr=self._log, env=path, cwd="/"
        )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        ended = os.pidfd_open(self._process.pid)
        try:
            for _ in range(PATIENCE * 10):
                asked = subprocess.run(["docker", "-H", self.host, "version"], capture_output=True, check=False)
                if asked.returncode == 0:
                    return
                if select.select([ended], [], [], 0.1)[0]:
                    break
        finally:
            os.close(ended)
        self._log.seek(0)
        raise RuntimeError(f"dockerd does not answer: {self._log.read().decode()}")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture(scope="session")
def docker_daemon() -> Iterator[Docker]:
    daemon = Docker()
    yield daemon
    daemon.close()


@pytest.fixture
def docker(docker_daemon: Docker, monkeypatch: pytest.MonkeyPatch) -> Docker:
    monkeypatch.setenv("DOCKER_HOST", docker_daemon.host)
    return docker_daemon


@pytest.fixture(scope="session")
def podman_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables that give Podman places of its own, and runc: crun refuses a machine with both versions of cgroups."""
    top = Path(tempfile.mkdtemp(prefix="podman-", dir="/tmp"))
    (top / "run").mkdir(mode=0o700)
    (top / "containers.conf").write_text(
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        f'tmp_dir = "{top}/tmp"\nstatic_dir = "{top}/libpod"\nvolume_path = "{top}/volumes"\n'
        f'[network]\nnetwork_config_dir = "{top}/networks"\n'
    )
    (top / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{top}/data"\nrootless_storage_path = "{top}/data"\n'
        f'runroot = "{top}/state"\n'
    )
    places = {
        "CONTAINERS_CONF": f"{top}/containers.conf",
        "CONTAINERS_STORAGE_CONF": f"{top}/storage.conf",
        "XDG_RUNTIME_DIR": f"{top}/run",
    }
    yield places
    # Never `podman system reset`: it also removes what these variables do not name. Some files belong to further users
    # of the user's, who exist only in there.
    pausing = [int(file.read_text()) for file in top.rglob("pause.pid")]  # holds a rootless Podman's user namespace
    within = [] if os.geteuid() == 0 else ["podman", "unshare"]
    subprocess.run([*within, "rm", "-rf", str(top)], env={**os.environ, **places}, capture_output=True, check=False)
    shutil.rmtree(top, ignore_errors=True)  # what Podman itself was still using
    for pid in pausing:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def podman(podman_places: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in podman_places.items():
        monkeypatch.setenv(name, value)
    return podman_places
