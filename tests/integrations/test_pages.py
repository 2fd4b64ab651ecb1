"""The code of docs/integrations/ that needs a framework runs as it is written."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.blocks import BLOCKS, ROOT, Block
from tests.sandboxes import home

__all__ = ["home"]
#: harbor needs a newer Python than ours, and has an environment of its own in scripts/integrations.
NEWER = () if find_spec("harbor") else ("harbor",)
NEEDY = [block for block in BLOCKS if block.note("needs") not in ("", "pytest", "docker", *NEWER)]


@pytest.mark.integrations
@pytest.mark.parametrize("block", NEEDY, ids=[block.id for block in NEEDY])
def test_a_python_block_runs(block: Block, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # `before` may start what a page's reader has
    code = f"{block.note('before')}\n{block.code}\n{block.note('after')}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


@pytest.mark.integrations
def test_every_framework_that_a_page_names_is_here() -> None:
    assert [block.id for block in NEEDY if find_spec(block.note("needs")) is None] == []
