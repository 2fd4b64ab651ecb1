"""Docker is an engine like the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import BLOCKS, Block
from tests.engines.conformance import Conformance

pytestmark = [pytest.mark.containers, pytest.mark.root, pytest.mark.usefixtures("docker")]


class TestDocker(Conformance):
    engine = "docker"


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.note("needs") == "docker"], ids=lambda one: one.id)
def test_the_code_on_its_page_runs_as_it_is_written(block: Block, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", block.code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "inside\n\n"), done.stderr
