"""Jupyter: the suites of jupyter_client and nbclient, unchanged, with every kernel that they start behind walls.

`JUPYTER_DEFAULT_PROVISIONER_NAME` is Jupyter's own way to say who starts the kernels whose specification names nobody.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.audit.reading import entries
from tests.integrations import suites
from tests.integrations.results import SUITE

pytestmark = pytest.mark.integrations
PYTHON = suites.PLACE / "jupyter" / "bin" / "python"
#: The tests that start kernels. The others, about messages and specifications, never meet a provisioner.
FILES = {
    "jupyter_client": ["restarter", "client", "kernelmanager", "manager", "multikernelmanager", "public_api"],
    "nbclient": ["cli", "client"],
}
MEET = "two notebooks meet in a directory of the host, which no kernel sees"
EXPECTED = {"test_client::test_parallel_notebooks": MEET, "test_client::test_async_parallel_notebooks": MEET}


@pytest.mark.parametrize("package", FILES)
def test_jupyters_own_suite_passes_with_kernels_behind_walls(
    package: str, tmp_path: Path, record_property: Any
) -> None:
    home = tmp_path / "sandbox"
    environment = {**os.environ, "JUPYTER_DEFAULT_PROVISIONER_NAME": "sandbox-provisioner", "SANDBOX_HOME": str(home)}
    environment["PATH"] = f"{PYTHON.parent}{os.pathsep}{environment['PATH']}"  # it calls `jupyter-execute` by its name
    words = [f"tests/test_{name}.py" for name in FILES[package]]
    words += ["-o", "asyncio_default_fixture_loop_scope=function"]  # without it pytest-asyncio warns, which is an error
    count = suites.run(PYTHON, words, suites.PLACE / "source" / package, environment, EXPECTED)
    record_property(SUITE, count.plain())
    assert suites.failed(count) == []
    started = [one for one in entries(str(home / "audit")) if one.get("summary") == "ran python"]
    assert len(started) > 20, "its kernels ran elsewhere"
