"""`sandbox why` and a real sandbox agree about every file, whatever the tree and the rules are."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.cli.why import path_decision
from sandbox.config.layers import resolve
from sandbox.config.rmtree import remove_tree
from tests import soaking

pytestmark = pytest.mark.walls

# fmt: off
NAMES = [
    ".env", ".env.local", ".env.example", "a", "b.pem", "id_rsa", "secrets.json", "config/prod.yaml", "config/x",
    "src/x.py", "src/x/d.txt", ".vscode/settings.json", ".idea/x", ".git/hooks/pre-commit", ".git/config", ".git/HEAD",
    "node_modules/m/.env", "node_modules/m/i.js", "sub/.env", "sub/deep/key.pem", "sub/deep/a", ".claude/settings.json",
    ".claude/x", ".npmrc", "credentials", ".aws/credentials", ".ssh/id_ed25519", ".bashrc", "Makefile", ".envrc",
    ".husky/pre-commit", "AGENTS.md", "lib/.git/config", "lib/.git/HEAD", "lib/a", " b", "x y/z", "é/ü",
]
DIRECTORIES = ["", "config", "src", "src/x", "sub", "sub/deep", "node_modules", "lib", "x y", "é", ".vscode"]
PATTERNS = [
    ".env", "*.pem", "config/prod.yaml", "/config", "src/**", "**/deep/**", "sub/", "a", "*", "x*", "**/x", "é",
    ".env*", "credentials*", "sub/*", "**/.env", "lib/.git", "*.js", "/sub/deep/a", "d.txt", "deep",
]
# fmt: on
INSIDE = """
import json, sys
seen = {}
for path in (files := json.load(sys.stdin)):
    try:
        with open(path, "rb") as file:
            seen[path] = [file.read(200).startswith(b"content of")]
    except OSError:
        seen[path] = [False]
for path in files:
    try:
        with open(path, "r+b") as file:
            file.seek(0, 2)
            file.write(b"changed by " + path.encode() + b";")
    except OSError:
        pass
print(json.dumps(seen))
"""


def tree(chance: random.Random, top: Path) -> list[str]:
    """Files of a project and of a directory beside it, with links and hard links between them."""
    files: list[str] = []
    for base in ("project", "beside"):
        for name in chance.sample(NAMES, chance.randint(8, 25)):
            path = top / base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"content of {base}/{name}\n")
            files.append(str(path))
    for number in range(chance.randint(0, 6)):
        one = chance.choice(files)
        link = top / chance.choice(["project", "project", "beside"]) / chance.choice(DIRECTORIES) / f"l{number}"
        link.parent.mkdir(parents=True, exist_ok=True)
        if chance.random() < 0.5:
            os.link(one, link, follow_symlinks=False)
        else:
            link.symlink_to(chance.choice([one, os.path.relpath(one, link.parent), os.path.dirname(one)]))
        files.append(str(link))
    return files


def rules(chance: random.Random, top: Path) -> dict[str, Any]:
    filesystem: dict[str, Any] = {"root": f"{top}/project", "toolchains": False}

    def paths() -> list[str]:
        named = (f"{top}/{chance.choice(['project', 'beside'])}/{chance.choice([*NAMES, *DIRECTORIES])}".rstrip("/")
                 for _ in range(chance.randint(0, 3)))  # fmt: skip
        return list(dict.fromkeys(one for one in named if os.path.lexists(one)))

    chances = {"deny_read": 0.6, "deny_write": 0.5, "allow_read": 0.5, "allow_write": 0.4}
    filesystem |= {name: paths() for name, often in chances.items() if chance.random() < often}
    for name, often in {"blocked_patterns": 0.5, "allowed_patterns": 0.3}.items():
        if chance.random() < often:
            filesystem[name] = chance.sample(PATTERNS, chance.randint(0, 4))
    filesystem |= {name: True for name in ("read_only", "show_host") if chance.random() < 0.15}
    if filesystem["root"] in filesystem.get("deny_read", []):  # a command could not even start there
        filesystem["deny_read"].remove(filesystem["root"])
    return {"filesystem": filesystem}


def disagreements(seed: int, top: Path) -> list[object]:
    chance = random.Random(seed)
    files, config = tree(chance, top), rules(chance, top)
    resolved = resolve(config, project=f"{top}/project")
    with Sandbox(config) as sandbox:
        result = sandbox.exec(["python3", "-c", INSIDE], input=json.dumps(files), check=True)
    seen = json.loads(result.stdout)
    found: list[object] = []
    for path in filter(os.path.isfile, files):
        changed = f"changed by {path};" in Path(path).read_text()
        for operation, did in (("read", seen[path][0]), ("write", changed)):
            decision = path_decision(resolved, path, operation)
            # A path in /tmp that is not shown is a new file of the tenant's own there.
            if bool(decision) != did and decision.rule != "own-scratch":
                found.append((seed, operation, path, decision.rule, did, config))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_what_why_says_is_what_a_tenant_can_do(seed: int, tmp_path: Path) -> None:
    assert disagreements(seed, tmp_path) == []


@pytest.mark.soak
def test_also_in_a_long_search(tmp_path: Path) -> None:
    for number in soaking.rounds():
        top = tmp_path / str(number)
        assert disagreements(1000 + number, top) == []
        remove_tree(str(top))


def test_a_directory_that_cannot_be_changed_has_no_exception(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "beside/inner").mkdir(parents=True)
    (tmp_path / "beside/inner/a").write_text("a")
    lists = {"deny_write": [f"{tmp_path}/beside"], "allow_write": [f"{tmp_path}/beside/inner"]}
    for whole in (False, True):
        config = {"filesystem": {"root": f"{tmp_path}/project", "show_host": whole, **lists}}
        with Sandbox(config) as sandbox:
            assert sandbox.exec(f"echo b > {tmp_path}/beside/inner/a").exit_code != 0
    assert (tmp_path / "beside/inner/a").read_text() == "a"


def test_blocked_files_of_a_read_only_project_are_hidden_where_the_host_is_shown(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SECRET=1")
    config = {"filesystem": {"root": str(tmp_path), "show_host": True, "read_only": True}}
    with Sandbox(config) as sandbox:
        assert "SECRET" not in sandbox.exec("cat .env").stdout


def test_writing_can_be_allowed_in_a_blocked_directory(tmp_path: Path) -> None:
    (tmp_path / "src/x").mkdir(parents=True)
    lists = {"blocked_patterns": ["src"], "allow_write": [f"{tmp_path}/src/x"]}
    with Sandbox({"filesystem": {"root": str(tmp_path), **lists}}) as sandbox:
        assert sandbox.exec("echo a > src/x/a").exit_code != 0
    assert os.listdir(tmp_path / "src/x") == []
