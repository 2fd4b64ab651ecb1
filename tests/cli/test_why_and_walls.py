"""`sandbox why` and the walls agree: the same table of files, asked of both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.sandboxes import Command

pytestmark = pytest.mark.walls

# name -> what leads there
CASES = (
    "plain", ".env", "sub/.env.local", "hard-link", "sub/hard-link", "soft-link", "dir-link/inner", ".aws/config",
    "sub/notes", "denied/x", "denied/given-back", "secret-branch/x", "other.pem", "listed.pem", ".git/config",
    ".git/hooks/pre-commit", ".git/refs/heads/fix-secret", "frozen", ".ENV", "target", "linked-secret",
)  # fmt: skip
CONFIG = """
filesystem:
  allow_read: [.env, .aws/config, denied/given-back, OUTSIDE/.env, OUTSIDE/listed]
  deny_read: [denied, /usr/bin/env]
  deny_write: [frozen]
  allowed_patterns: [listed.pem]
"""


@pytest.fixture
def project(cli: Command, home: Path, tmp_path: Path) -> Path:
    project, outside = tmp_path / "project", tmp_path / "outside"
    for name in CASES:
        if "link" not in name:
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text("content")
    outside.mkdir()
    for name in (".env", "listed", "unlisted"):
        (outside / name).write_text("content")
    os.link(project / ".env", project / "hard-link")
    os.link(project / "other.pem", project / "sub" / "hard-link")
    (project / "soft-link").symlink_to(".env")
    (project / "dir-link").symlink_to("denied")
    (project / "linked-secret").symlink_to("target")  # a blocked name that is a link: what it leads to is blocked
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(CONFIG.replace("OUTSIDE", str(outside)))
    return project


@pytest.mark.parametrize("operation", ["read", "write"])
def test_why_says_what_a_tenant_meets(cli: Command, project: Path, operation: str) -> None:
    outside = project.parent / "outside"
    asked = [*CASES, *(str(outside / name) for name in (".env", "listed", "unlisted"))]
    asked += ["/usr/bin/env", "/usr/bin/id"]
    asked.remove("dir-link/inner")
    attempt = 'exec 3<"$1"' if operation == "read" else 'exec 3>>"$1"'
    script = f'for f; do if sh -c \'{attempt}\' - "$f" 2>/dev/null; then echo "$f yes"; else echo "$f no"; fi; done'
    seen = cli("run", "--", "sh", "-c", script, "-", *asked).stdout.splitlines()
    told = []
    for name in asked:
        words = ["why", "--path", name, *(["--write"] if operation == "write" else [])]
        told.append(f"{name} {'yes' if cli(*words).returncode == 0 else 'no'}")
    assert told == seen
    assert {line.rpartition(" ")[2] for line in seen} == {"yes", "no"}


def test_without_walls_why_says_so(cli: Command, project: Path, home: Path) -> None:
    (home / "config.yaml").write_text("mode: off\n")
    assert "Nothing is isolated" in cli("why", "--path", ".env").stdout


def test_why_knows_what_an_earlier_run_blocked(cli: Command, project: Path) -> None:
    assert cli("run", "--", "rm", "linked-secret").returncode == 0  # because of this link, its target is blocked
    assert cli("run", "--", "cat", "target").returncode != 0
    assert cli("why", "--path", "target").returncode == 1
