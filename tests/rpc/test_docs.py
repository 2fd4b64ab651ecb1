"""docs/rpc.md and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

from sandbox.rpc import errors
from sandbox.rpc.method_table import METHODS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "rpc.md").read_text(encoding="utf-8")


def test_every_error_code_is_in_the_table() -> None:
    documented = {(name, int(code)) for code, name in re.findall(r"^\| (-32\d+) \| (\w+) \|", PAGE, re.MULTILINE)}
    assert documented == {(name, value) for name, value in vars(errors).items() if isinstance(value, int)}


def test_every_method_is_in_the_table() -> None:
    table = PAGE.split("## Methods")[1].split("## Events")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(METHODS)
