"""Programs that embed srt's library see the same with ours: they change one import.

`srt_programs.mjs` is run with ours, and with the original where `make bench` has installed it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.places import ROOT
from tests.sandboxes import program

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node and npm (scripts/setup dev)")

PROGRAMS = Path(__file__).with_name("srt_programs.mjs")
PEERS = ROOT / ".bench" / "npm" / "node_modules"
ORIGINAL = PEERS / "@anthropic-ai" / "sandbox-runtime" / "dist" / "index.js"
SCHEMA = ["ok"] * 6 + ["network.allowedDomains.0"] * 5 + ["network.allowedDomains", "network.allowedDomains.0"]
SCHEMA += ["network.httpProxyPort", "filesystem.allowWrite.0", "filesystem.allowWrite.0", "allowPty"]
SCHEMA += ["mandatoryDenySearchDepth", "credentials.envVars.0.mode", "filesystem", "network filesystem", "", ""]
EMPTY = {
    "network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
}
SEEN: dict[str, Any] = {
    "status": [7, "out\n", "err\n", 0, "it's 2\n"],
    "argv": [4, "by argv\n"],
    "ports": [8888, 1080],
    "hostProxy": ["the origin"] * 3 + ["403", "407", "407", "000", "000"],
    "filtered": [
        ['["POST","/ok?a=b",null,null,"posted"]', "200"],
        True,
        *["403"] * 4,
        ['["GET","/removes",null,null,""]', "200"],
        "200",
        "400",
        "405",
        [[200, "yes"]],
        [
            *("POST /ok", "GET /no", "GET /no", "GET /no-status", "GET /odd"),
            *("GET /throws", "GET /sets", "GET /removes", "GET /seen"),
        ],
        ["http", "localhost", "/ok?a=b", "posted"],
    ],
    "files": ["new\n", "", True, True, "new\n", "mine"],
    "later": ["", "mine"],
    "custom": [True, "y\n"],
    "surroundings": [0, "./sub\nblue\ntyped"],
    "shell": [False, "bash\n"],
    "refused": ["403", True, False, "the text", True, "before", 0, True],
    "ignored": [],
    "asked": ["asked.test:80", "deny network-outbound asked.test:80 (not today)"],
    "lists": ["reached", False, False],
    "strict": [],
    "getters": [
        [True, False, {}],
        [True, {"allowedHosts": ["a.example"], "deniedHosts": ["b.example"]}, ["a.example"]],
        [],
        True,
        {"allowedHosts": ["c.example"]},
    ],
    "update": ["x\n", True, False],
    "tightened": ["403", "403"],
    "early": [],
    "reset": "again\n",
    "aborted": "AbortError",
    "killed": "SIGTERM",
    "schema": [SCHEMA, "ZodError", EMPTY],
    "schemaOfSecrets": [True] * 2 + [False] * 25,
    "denied": ["/some/secret", "~/.netrc"],
    "keepsItsFilter": [True, True],
}


def seen(node: str, library: Path, name: str, at: Path, home: Path) -> Any:
    environment = {**os.environ, "SANDBOX_HOME": str(home), "SANDBOX_COMMAND": " ".join(program())}
    words = [node, str(PROGRAMS), str(library), name]
    done = subprocess.run(words, cwd=at, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "embedder").mkdir()
    return tmp_path / "embedder"


@pytest.mark.parametrize("name", SEEN)
def test_a_program_that_embeds_srt_sees_what_it_expects(name: str, typescript: Path, project: Path, home: Path) -> None:
    ours = typescript / "clients" / "typescript" / "dist" / "src" / "srt" / "index.mjs"
    assert seen("node", ours, name, project, home) == SEEN[name]


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original is not installed (make bench)")
@pytest.mark.parametrize("name", SEEN)
def test_the_original_is_as_expected(name: str, project: Path, home: Path) -> None:
    node = next(iter(PEERS.glob("node*/bin/node")), Path("node"))
    assert seen(str(node), ORIGINAL, name, project, home) == SEEN[name]


def test_it_runs_where_streams_of_a_child_have_no_ref(typescript: Path, project: Path, home: Path) -> None:
    ours = typescript / "clients" / "typescript" / "dist" / "src" / "srt" / "index.mjs"
    assert seen("node", ours, "likeBun", project, home) == "fine\n"
