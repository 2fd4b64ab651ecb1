"""Every code block of the README and of docs/ runs as it is written, and does what the page shows."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sandbox.cluster import teams
from sandbox.config.dialects import create, srt
from sandbox.config.model import Config
from tests.docs.blocks import BLOCKS, ROOT, Block
from tests.docs.internet import Internet
from tests.docs.transcript import pattern, run, serve, steps_of
from tests.server.serving import Served

RUN = [block for block in BLOCKS if not block.note("skip") and not block.note("needs")]
RAN_HERE = {"console", "python", "yaml", "json", "toml", "starlark"}
RAN_ELSEWHERE = {"go", "typescript", "ts", "js"}  # tests/clients


def of(*languages: str) -> pytest.MarkDecorator:
    chosen = [block for block in RUN if block.language in languages]
    return pytest.mark.parametrize("block", chosen, ids=[block.id for block in chosen])


def test_every_block_is_run_or_says_why_not() -> None:
    assert [block.id for block in RUN if block.language not in RAN_HERE | RAN_ELSEWHERE | {"text"}] == []
    assert len(RUN) > 30
    # Those that cannot run here need a model, a public certificate, a cluster or minutes. The page says which.
    assert len([block for block in BLOCKS if block.note("skip")]) <= 18


def test_what_a_reader_would_type_or_run_is_not_called_text() -> None:
    code = re.compile(r"^(\$ |import |from \w+ import )", re.MULTILINE)
    assert [block.id for block in BLOCKS if block.language == "text" and code.search(block.code)] == []
    unlabelled = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    labelled = re.compile(r"^```\w.*?^```$", re.MULTILINE | re.DOTALL)
    pages = {block.page: labelled.sub("", (ROOT / block.page).read_text()) for block in BLOCKS}
    assert [page for page, rest in pages.items() if any(code.search(one) for one in unlabelled.findall(rest))] == []


@pytest.fixture(scope="session")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    named = {host for block in BLOCKS for host in re.findall(r"\b(?:[a-z0-9-]+\.)+[a-z]{2,}\b", block.code)}
    one = Internet(tmp_path_factory.mktemp("internet"), sorted(named))
    yield one
    one.close()


@pytest.fixture
def environment(tmp_path: Path, internet: Internet) -> dict[str, str]:
    """A person's own: a home, a configuration whose proxy is the stand-in for the internet, and our commands."""
    home = tmp_path / "home"
    (home / ".sandbox").mkdir(parents=True)
    network = {"upstream_proxy": internet.proxy, "ca_certificates": [internet.authority]}
    (home / ".sandbox" / "config.yaml").write_text(yaml.safe_dump({"network": network}))
    ours = str(Path(sys.executable).parent)
    return {
        "HOME": str(home),
        "PATH": f"{ours}:{home}/bin:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "OPENAI_API_KEY": "sk-not-a-real-key-1234",
        "SANDBOX_AUTHORITY": os.environ["SANDBOX_AUTHORITY"],
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
    }


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def prepare(block: Block, project: Path, environment: dict[str, str]) -> None:
    if block.note("config"):
        file = Path(environment["HOME"], ".sandbox", "config.yaml")
        own, more = yaml.safe_load(file.read_text()), yaml.safe_load(block.note("config"))
        merged = {**own, **more, "network": {**own["network"], **more.get("network", {})}}
        file.write_text(yaml.safe_dump(merged))
    setup = {**environment, "PYTHONPATH": str(ROOT)}
    for line in block.notes.get("setup", []):
        subprocess.run(["bash", "-ec", line], cwd=project, env=setup, check=True, stdin=subprocess.DEVNULL)


@pytest.fixture
def served(block: Block, environment: dict[str, str], project: Path) -> Iterator[Block]:
    """The block, with the address of a server that runs in place of the page's, if it asks for one."""
    if not block.note("server"):
        yield block
        return
    server = Served(Path(environment["HOME"], ".sandbox"), "--port", "0", cwd=project)
    environment["TOKEN"] = server.token
    code = re.sub(r"https://sandboxes\.example\.org|\blocalhost:7777", server.address, block.code)
    yield dataclasses.replace(block, code=code)
    server.end()


@of("console")
def test_a_transcript_is_what_a_terminal_shows(served: Block, project: Path, environment: dict[str, str]) -> None:
    block = served
    prepare(block, project, environment)
    for step in steps_of(block.code):
        if "serves" in block.notes:
            output = serve(step, block.note("serves"), block.note("types"), project, environment)
            assert pattern(step.shown).search(output), output
            continue
        output, status = run(step, project, environment)
        if step.shown:
            assert pattern(step.shown).search(output), f"{step.command}\n{output}\n-- the page shows:\n{step.shown}"
        elif block.note("status") != "any":
            assert status == 0, f"{step.command}\n{output}"


@of("python")
def test_a_python_block_runs(served: Block, project: Path, environment: dict[str, str]) -> None:
    block = served
    prepare(block, project, environment)
    code = f"{block.note('before')}\n{block.code}\n{block.note('after')}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr


@of("starlark")
def test_a_policy_script_is_accepted(block: Block) -> None:
    from sandbox.network.intercept.script import Script

    Script(block.code, {"INTERNAL_TOKEN": "token-of-the-page"}, print)


@of("yaml")
def test_a_configuration_is_accepted(block: Block) -> None:
    data = yaml.safe_load(block.code)
    if block.note("as") == "teams":
        teams.read(data)
    elif block.note("as") == "manifest":
        assert {"apiVersion", "kind"} <= data.keys()
    else:
        Config.read(data)


@of("json")
def test_a_json_block_is_what_the_page_says(block: Block) -> None:
    data = json.loads(block.code)
    if block.note("as") == "srt settings":
        Config.read(srt.translate(data).data)
    elif block.note("as") == "create parameters":
        Config.read(create.translate(data).data)


@of("toml")
def test_a_toml_block_can_be_read(block: Block) -> None:
    assert tomllib.loads(block.code)


def test_the_pages_name_no_place_of_the_makers_machine() -> None:
    for page in {block.page for block in BLOCKS}:
        assert str(ROOT) not in (ROOT / page).read_text()
