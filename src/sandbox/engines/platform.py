"""Which engines work on this machine (`GET /api/sandbox/platform`), and starting Docker."""

from __future__ import annotations

import os
import subprocess
import sys

from sandbox.engines.auto import Candidate, names, tried
from sandbox.engines.container.cli import SYSTEM_PATH, Cli, find
from sandbox.engines.container.info import ask
from sandbox.errors import EngineUnavailable, SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# As Node.js spells them: the specification's clients compare with `process.arch`.
ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}
PATIENCE = 120.0  # seconds for a daemon to start

# What starts a Docker that is installed, the likeliest first.
STARTERS = {
    "darwin": (("/usr/bin/open", "-a", "Docker"),),
    "linux": (
        ("/usr/bin/systemctl", "--user", "start", "docker"),  # a rootless daemon
        ("/usr/bin/systemctl", "--user", "start", "docker-desktop"),
        ("/usr/bin/systemctl", "start", "docker"),
        ("/usr/sbin/service", "docker", "start"),
    ),
}


def platform() -> dict[str, Any]:
    """What `GET /api/sandbox/platform` answers. Engines are tried, so it takes a second or more; raises nothing."""
    candidates = [tried(name) for name in names()]
    best = next((one for one in candidates if one.works), None)
    machine = os.uname().machine
    return {
        "platform": sys.platform,
        "arch": ARCHITECTURES.get(machine, machine),
        "dockerInstalled": find("docker") is not None,
        "dockerRunning": docker_runs(),
        "dockerAvailable": any(one.name == "docker" and one.works for one in candidates),
        "appleContainerAvailable": any(one.name == "apple-container" and one.works for one in candidates),
        "wsl2": is_wsl2(os.uname().release),
        "recommended": best.name if best is not None else None,
        "reason": why(best, candidates),
        "candidates": [{"engine": one.name, "works": one.works, "why": str(one.why)} for one in candidates],
    }


def why(best: Candidate | None, candidates: Sequence[Candidate]) -> str:
    """Why `auto` picks that engine: it is the first in order that builds a sandbox."""
    before = [f"{one.name}: {one.why}" for one in candidates[: candidates.index(best) if best else None]]
    if best is None:
        return "; ".join(before)
    return "; ".join([*before, f"{best.name} comes first of those that work here ({best.why})"])


def docker_runs() -> bool:
    """Whether a Docker daemon answers."""
    try:
        ask(Cli("docker"))
    except EngineUnavailable:
        return False
    return True


def is_wsl2(release: str) -> bool:
    """Whether this kernel release is that of the Windows Subsystem for Linux."""
    return "microsoft" in release.lower() and "wsl2" in release.lower()


def start_docker() -> str:
    """Starts the installed Docker and waits until it answers. Returns the command that started it, or "" if it was
    running already. Raises EngineUnavailable when it is not installed, SandboxError when it cannot be started."""
    cli = Cli("docker")
    if docker_runs():
        return ""
    said = []
    for words in STARTERS.get(sys.platform, ()):
        if not os.access(words[0], os.X_OK):
            continue
        problem = _run(words)
        if problem is None and _answers(cli):
            return " ".join(words)
        said.append(f"{' '.join(words)}: {problem or 'it does not answer'}")
    raise SandboxError(
        "Docker could not be started ({said}); start its daemon yourself",
        said="; ".join(said) or "nothing here starts services",
    )


def _run(words: Sequence[str]) -> str | None:
    """Why the command failed; None when it did not."""
    from sandbox.engines.container.cli import printable

    environment = {**os.environ, "PATH": SYSTEM_PATH}
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return printable(str(problem))
    if done.returncode == 0:
        return None
    return printable(done.stderr.decode("utf-8", "replace").strip()[:300]) or f"status {done.returncode}"


def _answers(cli: Cli) -> bool:
    """Waits until the daemon answers. Docker Desktop is slow to start."""
    import time

    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            ask(cli)
        except EngineUnavailable:
            time.sleep(0.5)
        else:
            return True
    return False
