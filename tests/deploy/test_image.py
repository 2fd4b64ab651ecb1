"""The images, built by an ordinary user and run as a pod would run them. `make image`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.deploy.kustomize import DEPLOY
from tests.engines.container_engines import podman_places  # noqa: F401 - a fixture

pytestmark = pytest.mark.image
SERVER, RAY = "localhost/sandbox-server:latest", "localhost/sandbox-ray:latest"
PROFILE = DEPLOY / "seccomp" / "sandbox.json"
# What the manifests' securityContext says, in Podman's words.
HARD = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp", "--network=none")
SECCOMP, PROC = f"--security-opt=seccomp={PROFILE}", "--security-opt=unmask=ALL"
PYTHON = "--entrypoint=/opt/sandbox/bin/python"
TOKEN = "sbx_" + "token" * 8


class Podman:
    """Containers of the images that `deploy/image/build` made, each gone when it ends."""

    def __init__(self, places: dict[str, str]) -> None:
        self._environment = {**os.environ, **places}
        build = [str(DEPLOY / "image" / "build"), "server", *(["ray"] if os.environ.get("RAY_IMAGE") else [])]
        done = subprocess.run(build, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        self.built = done.stdout.split()

    def run(
        self, *words: str, image: str = SERVER, options: tuple[str, ...] = (SECCOMP, PROC)
    ) -> subprocess.CompletedProcess[str]:
        command = ["podman", "run", "--rm", *HARD, *options, image, *words]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False, timeout=300)

    def doctor(self, *options: str) -> dict[str, dict[str, str]]:
        """What `sandbox doctor` says in a container with these options."""
        done = self.run("doctor", "--json", options=options)
        return {one["name"]: one for one in json.loads(done.stdout)}

    def start(self, *words: str, options: tuple[str, ...]) -> subprocess.Popen[str]:
        command = ["podman", "run", "--rm", *HARD, *options, SERVER, *words]
        return subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="session")
def podman(podman_places: dict[str, str]) -> Iterator[Podman]:  # noqa: F811
    yield Podman(podman_places)


def test_a_sandbox_runs_in_the_container_with_its_walls(podman: Podman) -> None:
    done = podman.run("run", "--", "sh", "-c", "id -u; cat /proc/self/status; hostname")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^NoNewPrivs:\t1$", done.stdout, re.MULTILINE)
    assert re.search(r"^CapEff:\t0+$", done.stdout, re.MULTILINE)
    filters = re.search(r"^Seccomp_filters:\t([0-9]+)$", done.stdout, re.MULTILINE)
    assert filters and int(filters[1]) >= 2  # the container's, and the guest's own
    assert done.stdout.endswith("sandbox\n")


def test_doctor_finds_everything_that_it_needs(podman: Podman) -> None:
    found = podman.doctor(SECCOMP, PROC)
    assert found["isolation"]["ok"] and found["network capture"]["ok"]
    assert "--device /dev/fuse" in found["programmable files"]["remedy"]


def test_nothing_is_compiled_at_a_start(podman: Podman) -> None:
    """The root is read-only: it would be compiled again at each start, which took Ray longer than it waits."""
    done = podman.run(
        "-v", "-c", "import asyncio, sandbox.cli.main, sandbox.server.app", options=(SECCOMP, PROC, PYTHON)
    )
    compiled = re.findall(r"^# code object from (/.*\.py)$", done.stderr, re.MULTILINE)
    assert done.returncode == 0 and compiled == []


def test_any_user_will_do_as_openshift_chooses_one(podman: Podman) -> None:
    done = podman.run("run", "--", "true", options=(SECCOMP, PROC, "--user=54321:0"))
    assert done.returncode == 0, done.stderr


def refused(podman: Podman, *options: str) -> str:
    """What doctor says where walls cannot be built; nothing runs there, either."""
    ran = podman.run("run", "--", "echo", "it ran", options=options)
    assert ran.returncode == 125 and ran.stdout == ""
    found = podman.doctor(*options)["isolation"]
    assert not found["ok"]
    return f"{found['detail']} {found['remedy']}"


def test_without_the_profile_the_field_for_it_is_named(podman: Podman) -> None:
    told = refused(podman, PROC)
    assert "securityContext.seccompProfile" in told and "procMount" not in told


@pytest.mark.parametrize("call", ["unshare", "mount", "sethostname"])
def test_a_profile_that_refuses_one_call_is_named_with_the_call(podman: Podman, tmp_path: Path, call: str) -> None:
    # As containerd's and Docker's own profiles do for a container without CAP_SYS_ADMIN.
    profile = json.loads(PROFILE.read_text())
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name != call]
    profile["syscalls"].append({"names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": 1})
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    told = refused(podman, f"--security-opt=seccomp={tmp_path}/profile.json", PROC)
    assert f"`{call}" in told and "securityContext.seccompProfile" in told


def test_with_a_masked_proc_the_field_for_it_is_named(podman: Podman) -> None:
    told = refused(podman, SECCOMP)
    assert "securityContext.procMount: Unmasked" in told and "seccompProfile" not in told


def test_both_are_named_when_both_are_missing(podman: Podman) -> None:
    told = refused(podman)
    assert "securityContext.procMount: Unmasked" in told and "securityContext.seccompProfile" in told


def test_the_server_answers_its_probes_and_runs_a_sandbox(podman: Podman, tmp_path: Path) -> None:
    """On a Unix socket, because these containers have no network; ends on SIGTERM as the kubelet sends it."""
    share = tmp_path / "share"
    share.mkdir(mode=0o777)
    share.chmod(0o777)
    (share / "tokens").write_text(f"{TOKEN} *\n")
    words = ("serve", "--unix", "/share/socket", "--token-file", "/share/tokens", "--most", "4")
    process = podman.start(
        *words,
        options=(SECCOMP, PROC, f"--volume={share}:/share", "--userns=keep-id", f"--user={os.getuid()}:0"),
    )
    try:
        assert process.stdout is not None and process.stdout.readline().startswith("serving on")
        transport = httpx.HTTPTransport(uds=str(share / "socket"))
        with httpx.Client(transport=transport, base_url="http://localhost", timeout=60) as client:
            assert client.get("/v1/ready").status_code == 200
            assert client.get("/v1/health").status_code == 200
            client.headers["Authorization"] = f"Bearer {TOKEN}"
            id = client.post("/v1/sandboxes", json={"config": {}}).json()["id"]
            done = client.post(f"/v1/sandboxes/{id}/exec", json={"command": "echo hello; true"}).json()
            assert (done["exit_code"], done["stdout"]) == (0, "hello\n")
    finally:
        process.terminate()
        assert process.wait(60) == 0


START = (
    "ray start --head --num-cpus 1 --object-store-memory 100000000 --disable-usage-stats --include-dashboard false "
    '--block >&2 & until ray status | grep node_; do kill -0 $! || exit 1; sleep 1; done; cd /tmp; exec python -c "$1"'
)
USE = """
from sandbox.cluster import Cluster
with Cluster() as cluster, cluster.sandbox(timeout=120) as sandbox:
    print(sandbox.exec("id -u; cat /proc/self/status").stdout)
"""


@pytest.mark.skipif("RAY_IMAGE" not in os.environ, reason="`make image RAY=1` builds it")
def test_a_ray_node_starts_in_its_image_and_makes_sandboxes_with_their_walls(podman: Podman) -> None:
    done = podman.run("sh", "-c", START, "sh", USE, image=RAY, options=(SECCOMP, PROC, "--shm-size=256m"))
    assert "node_" in done.stdout, done.stderr[-2000:]
    assert re.search(r"^NoNewPrivs:\t1$", done.stdout, re.MULTILINE), done.stderr[-2000:]
    assert re.search(r"^CapEff:\t0+$", done.stdout, re.MULTILINE)
