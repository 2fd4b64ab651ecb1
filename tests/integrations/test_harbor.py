"""harbor: two tasks' images made here, run as harbor runs them, with its oracle agent; and what the walls say."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from sandbox.images import manage
from sandbox.images.importing import import_path
from sandbox.integrations.harbor_environment import SandboxEnvironment
from sandbox.integrations.harbor_images import _whole
from sandbox.registry.registry import entries
from tests.images import making
from tests.sandboxes import home

__all__ = ["home"]
pytestmark = [pytest.mark.integrations, pytest.mark.anyio]
PROGRAMS = ("bash", "tar", "gzip", "find", "sleep", "pwd", "true", "grep")
IMPORT_PATH = "sandbox.integrations.harbor_environment:SandboxEnvironment"
DOCKERFILE = "FROM scratch\nADD system.tar /\nWORKDIR /app\nENV GREETING=hello\nRUN echo built > /app/built\n"
SOLVE = "#!/bin/bash\nset -e\ncat built\necho $GREETING > answer\n"
TEST = (
    "#!/bin/bash\nreward=0\n"
    'if [ "$(cat /app/answer)" = hello ] && [ "$(cat /app/built)" = built ]; then reward=1; fi\n'
    "echo $reward > /logs/verifier/reward.txt\n"
)


@pytest.fixture(scope="module")
def system() -> bytes:
    """A layer with what harbor calls in every task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "PROGRAMS", (*making.PROGRAMS, *PROGRAMS))
        return making.system.__wrapped__()


@pytest.fixture
def store(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SANDBOX_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "secret").write_text("s3cret")
    yield
    assert [one.id for one in entries(str(home)) if one.running] == []


def task(place: Path, environment: str, solve: str = SOLVE) -> Path:
    """A task as harbor has it."""
    for name, content in {
        "task.toml": f'version = "1.0"\n[environment]\nnetwork_mode = "no-network"\nmemory_mb = 512\n{environment}',
        "instruction.md": "Write the greeting to /app/answer.",
        "solution/solve.sh": solve,
        "tests/test.sh": TEST,
        "environment/.keep": "",
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    return place


def imported(place: Path, system: bytes) -> str:
    """An image of the same content as the Dockerfile's, brought by `images import`."""
    above = making.tar([making.directory("app"), making.file("app/built", b"built\n")])
    said = {"WorkingDir": "/app", "Env": ["GREETING=hello", "PATH=/usr/bin"]}
    manage.name(import_path(str(making.layout(place, [system, above], said))), "task-image")
    return "task-image"


def trial(where: Path, out: Path) -> dict[str, Any]:
    """What harbor's own command says of a trial with the oracle agent."""
    harbor = Path(sys.executable).parent / "harbor"
    words = ["trial", "start", "-p", str(where), "-a", "oracle", "--env", IMPORT_PATH, "--trials-dir", str(out)]
    done = subprocess.run([harbor, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(next(out.glob("*/result.json")).read_text())
    assert result["exception_info"] is None, result["exception_info"]
    return result


def test_harbor_runs_a_task_whose_dockerfile_is_built_here(store: None, tmp_path: Path, system: bytes) -> None:
    place = task(tmp_path / "task", "")
    (place / "environment" / "Dockerfile").write_text(DOCKERFILE)
    (place / "environment" / "system.tar").write_bytes(system)
    assert trial(place, tmp_path / "trials")["verifier_result"]["rewards"] == {"reward": 1.0}
    (log,) = (tmp_path / "trials").glob("*/agent/oracle.txt")
    assert log.read_text() == "built\n"


def test_harbor_runs_a_task_whose_image_was_imported(store: None, tmp_path: Path, system: bytes) -> None:
    place = task(tmp_path / "task", f'docker_image = "{imported(tmp_path / "layout", system)}"')
    assert trial(place, tmp_path / "trials")["verifier_result"]["rewards"] == {"reward": 1.0}


def test_a_solution_that_is_wrong_has_no_reward(store: None, tmp_path: Path, system: bytes) -> None:
    image = imported(tmp_path / "layout", system)
    place = task(tmp_path / "task", f'docker_image = "{image}"', "#!/bin/bash\necho wrong > answer\n")
    assert trial(place, tmp_path / "trials")["verifier_result"]["rewards"] == {"reward": 0.0}


# -- the environment by itself


def environment(tmp_path: Path, image: str, **more: Any) -> SandboxEnvironment:
    paths = TrialPaths(trial_dir=tmp_path / "trial")
    paths.mkdir()
    (tmp_path / "empty").mkdir(exist_ok=True)
    asked = {"network_policy": NetworkPolicy(network_mode=NetworkMode.NO_NETWORK), **more}
    return SandboxEnvironment(
        environment_dir=tmp_path / "empty",
        environment_name="task",
        session_id="task__env",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(docker_image=image),
        **asked,
    )


@pytest.fixture
async def started(store: None, tmp_path: Path, system: bytes) -> AsyncIterator[SandboxEnvironment]:
    made = environment(tmp_path, imported(tmp_path / "layout", system))
    await made.start(force_build=False)
    yield made
    await made.stop(delete=True)


async def test_nothing_of_the_host_is_there(started: SandboxEnvironment, tmp_path: Path) -> None:
    assert (await started.exec(f"cat {tmp_path / 'secret'}")).return_code == 1
    assert (await started.exec("id -u; pwd; cat built")).stdout == "0\n/app\nbuilt\n"
    assert (await started.exec("cat /etc/os-release")).stdout == "ID=test\n"


async def test_files_go_in_and_out(started: SandboxEnvironment, tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "file").write_text("x")
    await started.upload_dir(tmp_path / "in", "/data/new")
    await started.upload_file(tmp_path / "secret", "/data/other/name")
    assert (await started.exec("cat /data/new/deep/file /data/other/name")).stdout == "xs3cret"
    await started.exec(f"ln -s {tmp_path / 'secret'} /data/new/link; echo made > /data/new/made")
    await started.download_dir("/data", tmp_path / "out")
    await started.download_file("/data/new/made", tmp_path / "single" / "file")
    assert (tmp_path / "out" / "new" / "made").read_text() == "made\n" == (tmp_path / "single" / "file").read_text()
    assert (tmp_path / "secret").read_text() == "s3cret"


async def test_a_command_that_takes_too_long_is_killed(started: SandboxEnvironment) -> None:
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        await started.exec("exec sleep 1000", timeout_sec=1)
    assert "sleep" not in ((await started.exec("cat /proc/[0-9]*/comm")).stdout or "")


async def test_a_cancelled_command_is_killed(started: SandboxEnvironment) -> None:
    running = asyncio.create_task(started.exec("echo > /began; exec sleep 1000"))
    while not await started.is_file("/began"):
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "sleep" not in ((await started.exec("cat /proc/[0-9]*/comm")).stdout or "")


async def test_what_a_command_leaves_running_runs_on(started: SandboxEnvironment) -> None:
    begun = await started.exec("sleep 1000 >/dev/null 2>&1 </dev/null & echo $!")
    waiting = f"until grep -q sleep /proc/{int(begun.stdout or '')}/comm; do :; done"  # it may not be sleep yet
    assert (await started.exec(waiting, timeout_sec=60)).return_code == 0


async def test_there_is_one_user(started: SandboxEnvironment) -> None:
    assert (await started.exec("true", user="root")).return_code == 0
    with pytest.raises(ValueError, match="one user"):
        await started.exec("true", user="agent")


async def test_a_network_policy_holds_and_can_change(started: SandboxEnvironment) -> None:
    sandbox = started.sandbox
    assert sandbox is not None
    assert "wanted.example:80 is not allowed" in await asked(started, "wanted.example")
    only = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["wanted.example"])
    await started.set_network_policy(only)
    network = sandbox.sync.config.network
    assert (network.preset, network.allowed_hosts) == ("closed", ["wanted.example"])
    assert "other.example:80 is not allowed" in await asked(started, "other.example")


async def asked(environment: SandboxEnvironment, host: str) -> str:
    """What a request to a host is answered."""
    request = f"printf 'GET / HTTP/1.0\\r\\nHost: {host}\\r\\n\\r\\n' >&3; cat <&3"
    return (await environment.exec(f"exec 3<>/dev/tcp/{host}/80; {request}", timeout_sec=60)).stdout or ""


def test_mounts_and_compose_files_are_refused(store: None, tmp_path: Path) -> None:
    mount: Any = {"type": "bind", "source": str(tmp_path / "secret"), "target": "/secret"}
    with pytest.raises(ValueError, match="use no mounts"):
        environment(tmp_path, "any", mounts=[mount])
    (tmp_path / "empty" / "docker-compose.yaml").write_text("services: {}\n")
    with pytest.raises(ValueError, match="compose file"):
        environment(tmp_path, "any")


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("alpine:3", "docker.io/library/alpine:3"),
        ("someone/tool", "docker.io/someone/tool"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
        ("localhost:5000/a", "localhost:5000/a"),
    ],
)
def test_a_reference_means_what_docker_means_by_it(named: str, meant: str) -> None:
    assert _whole(named) == meant
