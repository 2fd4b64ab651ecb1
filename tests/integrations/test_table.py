"""The README says what the last `make integrations` found."""

from __future__ import annotations

import json

import pytest

from tests.integrations.table import PAGE, README, RESULTS, ROWS, for_page, for_readme, within

ADVICE = "run `make integrations`, or `python -m tests.integrations.table` if only the table's form changed"


@pytest.mark.parametrize("file", [README, PAGE], ids=["README", "page"])
def test_the_table_is_made_from_the_results(file: object) -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    table = for_readme(results) if file == README else for_page(results)
    text = (README if file == README else PAGE).read_text(encoding="utf-8")
    assert within(text, table) == text, ADVICE


def test_every_module_that_was_run_has_a_row_and_every_row_its_page() -> None:
    ran = set(json.loads(RESULTS.read_text(encoding="utf-8"))["modules"]) - {"test_table", "test_pages"}
    assert ran <= {module for row in ROWS for module in (*row.modules, row.examples)}, "add the new one to table.py"
    assert [row.page for row in ROWS if not (PAGE.parent / row.page).is_file()] == []


def test_no_result_that_is_kept_is_a_failure() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    bad = {
        f"{module}::{name}": reason
        for module, counts in results["modules"].items()
        for count in counts.values()
        for name, reason in count["missing"].items()
        if reason == "failed"
    }
    assert bad == {}
