"""What the dashboard shows of living sandboxes: what runs in them now, and every entry from the first one on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox.audit.record import Record
from tests.server.browser import chromium, dashboard
from tests.server.serving import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def test_the_command_that_runs_now_is_shown_and_what_it_uses(served: Served, browser: Browser) -> None:
    box = served.create("busy")
    run = f"/v1/sandboxes/{box}/exec"
    assert served.http.post(run, json={"command": "mkfifo /tmp/go"}).status_code == 200
    busy = served.start(run, {"command": "read line < /tmp/go"})
    with dashboard(browser, served) as page:
        row = page.get_by_role("row").filter(has_text="busy")
        row.get_by_text("read line").wait_for()
        row.get_by_text(re.compile(r"^\d+ %$")).wait_for()
        row.get_by_text(re.compile(r"\d (B|KB|MB)$")).wait_for()
        page.goto(f"{served.address}/#/s/{box}")
        page.locator(".facts").get_by_text("read line").wait_for()
        assert served.http.post(run, json={"command": "echo > /tmp/go"}).status_code == 200
        busy.result(60)
        page.goto(f"{served.address}/#/")
        row.get_by_text("read line").wait_for(state="detached")


def test_an_entry_that_is_written_while_the_page_loads_is_shown(tmp_path: Path, browser: Browser) -> None:
    """The record is empty when the page first looks, and is no longer when the page begins to listen."""
    served = Served(tmp_path / "home", cwd=tmp_path)
    record = Record(str(served.home / "audit"), sandbox="vm-early")

    def between(route: Route) -> None:
        record.write("policy_decision", "written in between")
        assert len(served.http.get("/v1/audit").json()["entries"]) == 1  # the server has seen it
        route.continue_()

    try:
        assert served.http.get("/v1/audit").json()["entries"] == []
        with dashboard(browser, served, token="sbx_wrong") as page:
            page.route("**/v1/audit/stream", between, times=1)
            page.get_by_role("alert").filter(has_text="not valid").wait_for()
            page.get_by_label("Token").fill(served.token)
            page.get_by_role("button", name="Sign in").click()
            page.get_by_role("link", name="Record").click()
            page.get_by_text("written in between").wait_for()
    finally:
        record.close()
        served.end()
