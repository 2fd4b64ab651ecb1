"""Runs a suite that a framework ships in its source: unchanged, with its own settings, in a process of its own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from tests.integrations.results import RESULTS, Count

PLACE = Path(__file__).parents[2] / ".integrations"


def run(
    python: Path, words: list[str], directory: Path, environment: Mapping[str, str], expected: Mapping[str, str]
) -> Count:
    """Runs pytest. What does not pass has its reason from `expected`, or else "failed", or why it was skipped."""
    own = {name: value for name, value in environment.items() if name != RESULTS}  # else it would write them, too
    with tempfile.TemporaryDirectory() as place:
        report = Path(place, "report.xml")
        command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *words]
        done = subprocess.run(
            command, cwd=directory, env=own, capture_output=True, text=True, timeout=1800, check=False
        )
        assert report.exists(), done.stdout + done.stderr
        found = ElementTree.parse(report)
    count = Count()
    for case in found.iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        bad, skipped = case.find("failure"), case.find("skipped")
        bad = bad if bad is not None else case.find("error")
        if bad is not None:
            count.missing[name] = expected.get(name, "failed")
            print(name, bad.get("message"), (bad.text or "")[-3000:])
        elif skipped is not None:
            count.missing[name] = f"the suite leaves it out: {skipped.get('message')}"
        else:
            count.passed += 1
    return count


def failed(count: Count) -> list[str]:
    """What failed without a known reason."""
    return [name for name, reason in count.missing.items() if reason == "failed"]
