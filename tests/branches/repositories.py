"""Repositories for the tests about branches, and what must stay as it is in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PERSON = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "Person",
    "GIT_AUTHOR_EMAIL": "person@example.org", "GIT_COMMITTER_NAME": "Person",
    "GIT_COMMITTER_EMAIL": "person@example.org",
}  # fmt: skip


def git(where: Path, *words: str, input: str | None = None) -> str:
    """The person's own git, outside."""
    done = subprocess.run(
        ["git", *words],
        cwd=where,
        env={**os.environ, **PERSON},
        capture_output=True,
        text=True,
        input=input,
        check=True,
    )
    return done.stdout.strip()


def repository(place: Path) -> Path:
    """One commit on `main`, hooks that would tell on us, and changes that nobody has committed."""
    place.mkdir(parents=True)
    git(place, "init", "-q", "-b", "main")
    git(place, "config", "user.name", "Person")
    git(place, "config", "user.email", "person@example.org")
    (place / "a").write_text("one\n")
    (place / "sub").mkdir()
    (place / "sub/x").write_text("x\n")
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "first")
    return place


def plant_hooks(place: Path, told: Path) -> None:
    """Every hook that setting a ref, checking out or committing could run."""
    hooks = (
        "reference-transaction",
        "post-checkout",
        "post-commit",
        "pre-commit",
        "post-update",
        "update",
        "pre-receive",
    )
    for name in hooks:
        hook = place / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\necho {name} >> {told}\n")
        hook.chmod(0o755)


def snapshot(place: Path, branch: str) -> dict[str, tuple[int, int, bytes]]:
    """Everything in the work tree and the repository but objects and that branch."""
    found = {}
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        ours = name.startswith(".git/objects/") or name.endswith(f"refs/heads/{branch}")
        holder = name in (".git/objects", ".git/refs/heads", ".git/logs/refs/heads")
        if ours or holder or not path.is_file():
            continue
        info = path.lstat()
        found[name] = (info.st_mode, info.st_mtime_ns, path.read_bytes())
    return found


def sandbox(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The `sandbox` command there."""
    command = [sys.executable, "-m", "sandbox", *words]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
