"""The TypeScript client: its own tests, its package and the examples, against the real `sandbox`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.clients.places import CLIENTS
from tests.sandboxes import program

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node and npm (scripts/setup dev)")

SOURCES = CLIENTS / "typescript"
SUITES = sorted(path.name.removesuffix(".mts") for path in (SOURCES / "test").glob("*.test.mts"))


def run(*words: str, at: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "SANDBOX_HOME": str(home),
        "SANDBOX_COMMAND": " ".join(program()),
        "OPENAI_API_KEY": "sk-not-a-real-key",
    }
    return subprocess.run(words, cwd=at, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def project(typescript: Path, home: Path, tmp_path: Path) -> Path:
    """A project of somebody who installed the package from its tarball."""
    place = tmp_path / "embedder"
    place.mkdir()
    packed = run("npm", "pack", "--ignore-scripts", f"--pack-destination={place}", at=_client(typescript), home=home)
    assert packed.returncode == 0, packed.stderr
    (place / "package.json").write_text('{"private": true}', encoding="utf-8")
    install = ("npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund")
    installed = run(*install, str(next(place.glob("*.tgz"))), at=place, home=home)
    assert installed.returncode == 0, installed.stderr
    return place


def _client(typescript: Path) -> Path:
    return typescript / "clients" / "typescript"


@pytest.mark.parametrize("suite", SUITES)
def test_its_own_tests_and_the_shared_vectors_pass(suite: str, typescript: Path, home: Path, tmp_path: Path) -> None:
    compiled = _client(typescript) / "dist" / "test" / f"{suite}.mjs"
    done = run("node", "--test", str(compiled), at=tmp_path / "project", home=home)
    assert done.returncode == 0, done.stdout


def test_the_package_holds_the_program_its_types_and_a_page_and_needs_nothing(project: Path) -> None:
    with tarfile.open(next(project.glob("*.tgz"))) as packed:
        names = {name.removeprefix("package/") for name in packed.getnames()}
    assert {"README.md", *(f"dist/src/index.{ending}" for ending in ("js", "mjs", "d.ts", "d.mts"))} <= names
    assert not [name for name in names if "test" in name]
    assert {name for name in os.listdir(project / "node_modules") if not name.startswith(".")} == {"agent-sandbox"}
    manifest = json.loads((SOURCES / "package.json").read_text(encoding="utf-8"))
    assert "dependencies" not in manifest


@pytest.mark.parametrize(
    ("file", "loads"),
    [
        ("program.mjs", "import { Sandbox } from 'agent-sandbox';"),
        ("program.cjs", "const { Sandbox } = require('agent-sandbox');"),
    ],
)
def test_a_program_that_imports_or_requires_the_package_works(file: str, loads: str, project: Path, home: Path) -> None:
    body = """
async function main() {
  const sandbox = await Sandbox.create();
  console.log((await sandbox.exec('echo hello')).stdout);
  await sandbox.close();
}
main();
"""
    (project / file).write_text(loads + body, encoding="utf-8")
    done = run("node", file, at=project, home=home)
    assert (done.returncode, done.stdout) == (0, "hello\n\n"), done.stderr


def test_both_ways_give_the_same_classes(project: Path, home: Path) -> None:
    script = """
import { createRequire } from 'node:module';
import * as imported from 'agent-sandbox';
const required = createRequire(import.meta.url)('agent-sandbox');
const names = Object.keys(required).sort();
const different = names.filter((name) => imported[name] !== required[name]);
console.log(JSON.stringify([names, different, Object.keys(imported).sort()]));
"""
    (project / "both.mjs").write_text(script, encoding="utf-8")
    done = run("node", "both.mjs", at=project, home=home)
    assert done.returncode == 0, done.stderr
    required, different, imported = json.loads(done.stdout)
    assert different == []
    assert [name for name in imported if name not in ("default", "module.exports")] == required
    assert "Sandbox" in required


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("program.mts", ["--module", "NodeNext"]),
        ("program.cts", ["--module", "NodeNext"]),
        ("program.ts", ["--module", "ESNext", "--moduleResolution", "bundler"]),
    ],
)
def test_types_are_found_however_a_program_is_compiled(
    file: str, options: list[str], project: Path, typescript: Path, home: Path
) -> None:
    modules = _client(typescript) / "node_modules"
    (project / "node_modules" / "@types").symlink_to(modules / "@types")
    (project / file).write_text(
        """
import { Sandbox, FileError, type ExecResult } from 'agent-sandbox';
export async function main(): Promise<ExecResult> {
  const sandbox = await Sandbox.create({ network: { allowed_hosts: [] } });
  // @ts-expect-error types are there, so this is a mistake
  await sandbox.exec(1);
  // @ts-expect-error and so is this
  await Sandbox.create({ netwrok: {} });
  return sandbox.exec('true').catch((problem) => { throw problem instanceof FileError ? problem.code : problem; });
}
""",
        encoding="utf-8",
    )
    compiler = [str(modules / ".bin" / "tsc"), "--noEmit", "--strict", "--target", "ES2022", "--types", "node"]
    done = run(*compiler, *options, file, at=project, home=home)
    assert done.returncode == 0, done.stdout


def test_the_code_on_its_page_runs_as_it_stands(project: Path, typescript: Path, home: Path) -> None:
    page = (SOURCES / "README.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in page.split("```typescript\n")[1:]]
    assert len(blocks) > 5
    (project / "program.mts").write_text("".join(blocks), encoding="utf-8")
    # What the page takes to be there: a project with sources and a result, and a make file here and there.
    for directory in ("src", "dist"):
        (project / "project" / directory).mkdir(parents=True)
        (project / "project" / directory / "app.js").write_text("var x = 1;\n", encoding="utf-8")
    for makefile in (project / "Makefile", project / "project" / "Makefile"):
        makefile.write_text("all test:\n\techo made\n", encoding="utf-8")
    modules = _client(typescript) / "node_modules"
    (project / "node_modules" / "@types").symlink_to(modules / "@types")
    compiler = [str(modules / ".bin" / "tsc"), "--strict", "--module", "NodeNext", "--target", "ES2022"]
    compiled = run(*compiler, "--types", "node", "program.mts", at=project, home=home)
    assert compiled.returncode == 0, compiled.stdout
    done = run("node", "program.mjs", at=project, home=home)
    assert done.returncode == 0, done.stderr
    assert "0 hello" in done.stdout
    assert "modified src/app.js" in done.stdout
    assert (project / "project" / "src" / "app.js").read_text(encoding="utf-8") == "let x = 1;\n"


@pytest.mark.parametrize(
    ("example", "words", "shown"),
    [
        ("usage", [], "Hello from sandbox!"),
        ("agent", [], "agent finished"),
        ("registry", [], "Pruned 0 VMs"),
        ("my-sandbox", ["run", "echo", "under my policy"], "under my policy"),
    ],
)
def test_the_examples_do_what_they_say(
    example: str, words: list[str], shown: str, typescript: Path, home: Path
) -> None:
    done = run("node", f"dist/{example}.js", *words, at=typescript / "examples" / "typescript", home=home)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
