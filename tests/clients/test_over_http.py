"""The TypeScript and Go clients' own tests once more, over HTTP: `connect` in place of a program of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.places import CLIENTS
from tests.sandboxes import program
from tests.server.serving import Served

SUITES = ["asks", "checkpoints", "commands", "files", "hooks", "network", "overlay", "streams", "vectors"]


@pytest.fixture
def environment(home: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    server = Served(home, "--port", "0", "--rate", "100000", cwd=tmp_path)
    yield {
        **os.environ, "SANDBOX_COMMAND": " ".join(program()), "OPENAI_API_KEY": "sk-not-a-real-key",
        "SANDBOX_TEST_SERVER": server.address, "SANDBOX_TEST_TOKEN": server.token, "NO_PROXY": "127.0.0.1",
        "GOFLAGS": "-mod=mod", "GOPROXY": "off", "CGO_ENABLED": "0",
    }  # fmt: skip
    server.end()


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node and npm (scripts/setup dev)")
def test_the_typescript_client_is_the_same_over_http(
    typescript: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    compiled = typescript / "clients" / "typescript" / "dist" / "test"
    words = ["node", "--test", "--test-concurrency=1", *(str(compiled / f"{one}.test.mjs") for one in SUITES)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go (scripts/setup dev)")
def test_the_go_client_is_the_same_over_http(environment: dict[str, str]) -> None:
    words = ["go", "test", "-count=1", "-timeout=30m", "."]
    done = subprocess.run(words, cwd=CLIENTS / "go", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


TYPESCRIPT = """
import { Sandbox, DeniedError, NotFoundError, SandboxError } from %s;
const url = process.env.SANDBOX_TEST_SERVER, token = process.env.SANDBOX_TEST_TOKEN;
const kind = async (promise) => promise.then(() => 'none', (problem) => problem.constructor.name);
console.log(await kind(Sandbox.connect(url, 'sbx_wrong')));
console.log(await kind(Sandbox.connect(url, token, { id: 'nowhere' })));
console.log(await kind(Sandbox.connect('http://127.0.0.1:1', token)));
console.log(await kind(Sandbox.connect('ftp://x', token)));
const made = await Sandbox.connect(url, token, { config: { env: { WORD: 'set' } } });
const same = await Sandbox.connect(url, token, { id: made.id });
console.log((await same.exec('echo $WORD')).stdout.trim(), same.id === made.id);
await same.close();
console.log((await made.exec('echo still here')).stdout.trim());
await made.close();
console.log(await kind(Sandbox.connect(url, token, { id: made.id })));
"""


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node and npm (scripts/setup dev)")
def test_a_typescript_program_learns_why_a_server_refuses(
    typescript: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    package = (typescript / "clients/typescript/dist/src/index.mjs").as_uri()
    (tmp_path / "program.mjs").write_text(TYPESCRIPT % repr(package))
    done = subprocess.run(
        ["node", "program.mjs"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    kinds = ["DeniedError", "NotFoundError", "SandboxError", "SandboxError"]
    assert done.stdout.split("\n")[:-1] == [*kinds, "set true", "still here", "ClosedError"], done.stderr
