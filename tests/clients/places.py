"""Where the clients are, and the TypeScript ones compiled."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "clients"
VECTORS = CLIENTS / "vectors"


@pytest.fixture(scope="session")
def typescript(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A copy of the client and the examples, compiled once for all workers; nothing is written into the tree."""
    base = tmp_path_factory.getbasetemp()
    tree = (base if worker_id == "master" else base.parent) / "typescript"
    with open(f"{tree}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (tree / "built").exists():
            _build(tree)
            (tree / "built").touch()
    return tree


def _build(tree: Path) -> None:
    ignore = shutil.ignore_patterns("node_modules", "dist", "package-lock.json")
    for place in ("clients/typescript", "clients/vectors", "examples/typescript"):
        shutil.copytree(ROOT / place, tree / place, ignore=ignore)
    client, examples = tree / "clients" / "typescript", tree / "examples" / "typescript"
    installed = CLIENTS / "typescript" / "node_modules"
    if installed.is_dir():
        shutil.copytree(installed, client / "node_modules", symlinks=True)
    else:
        _run("npm", "install", "--no-fund", "--no-audit", "--ignore-scripts", at=client)
    _run("npx", "tsc", at=client)
    # As `npm install` of the examples would do, without asking a registry again.
    (examples / "node_modules").mkdir()
    for name in ("typescript", "@types"):
        (examples / "node_modules" / name).symlink_to(client / "node_modules" / name)
    (examples / "node_modules" / "agent-sandbox").symlink_to(client)
    _run(str(client / "node_modules" / ".bin" / "tsc"), at=examples)


def _run(*words: str, at: Path) -> None:
    done = subprocess.run(words, cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
