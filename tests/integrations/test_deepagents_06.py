"""deepagents 0.6, for which LangChain's suite was written: that suite in an environment with this version."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from tests.integrations import suites
from tests.integrations.results import SUITE, VERSIONS

pytestmark = pytest.mark.integrations
PYTHON = suites.PLACE / "deepagents" / "bin" / "python"
WORDS = ["tests/integrations/test_deepagents.py", "-p", "no:asyncio", "-m", "integrations", "-k", "TestLangChainsSuite"]
VERSION = "import importlib.metadata as m; print(m.version('deepagents'))"


def test_langchains_suite_passes_with_the_version_that_it_was_written_for(record_property: Any) -> None:
    version = subprocess.run([PYTHON, "-c", VERSION], capture_output=True, text=True, check=True).stdout.strip()
    count = suites.run(PYTHON, WORDS, suites.PLACE.parent, os.environ, {})
    record_property(SUITE, count.plain())
    record_property(VERSIONS, {"deepagents 0.6": version})
    assert version.startswith("0.6.") and count.missing == {} and count.passed > 80
