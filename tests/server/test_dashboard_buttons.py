"""The dashboard's buttons that tests/server/test_dashboard.py does not press, each in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from sandbox.audit.record import Record
from tests.patience import until
from tests.server.browser import chromium, dashboard
from tests.server.serving import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog

NOWHERE = "http://127.0.0.1:9"  # where the gate sends what is allowed: no name is looked up, and nobody answers


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def allowed(served: Served, box: str) -> list[str]:
    found: list[str] = served.http.get(f"/v1/sandboxes/{box}/network").json()["network"]["allowed_hosts"]
    return found


def test_signing_out_forgets_the_token(served: Served, browser: Browser) -> None:
    with dashboard(browser, served) as page:
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("Token").wait_for()
        page.reload()
        page.get_by_label("Token").wait_for()
        assert page.get_by_role("heading", name="Sandboxes").count() == 0


def test_the_page_of_a_sandbox_ends_it(served: Served, browser: Browser) -> None:
    box = served.create("shown")
    with dashboard(browser, served) as page:
        page.goto(f"{served.address}/#/s/{box}")
        page.get_by_role("button", name="End").click()
        page.locator("h1 .state").filter(has_text="stopped").wait_for()
    assert served.http.get(f"/v1/sandboxes/{box}").json()["sandbox"]["status"] == "stopped"


def test_always_allow_is_for_every_sandbox_from_now_on(served: Served, browser: Browser) -> None:
    box = served.create("first")
    with dashboard(browser, served) as page:
        served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "curl -s http://always.example/"})
        page.goto(f"{served.address}/#/s/{box}")
        entry = page.get_by_role("listitem").filter(has_text="always.example:80").first
        entry.get_by_text("Why?").click()
        entry.get_by_role("button", name="Always allow").click()
        page.get_by_role("alert").filter(has_text="in every sandbox").wait_for()
    assert "always.example:80" in allowed(served, served.create("second"))


@pytest.mark.parametrize(
    ("answer", "host"), [("Allow once", "once.asked.example"), ("Allow for this sandbox", "longer.asked.example")]
)
def test_a_question_is_answered_by_its_buttons(served: Served, browser: Browser, answer: str, host: str) -> None:
    box = served.create(network={"ask": True, "upstream_proxy": NOWHERE})
    command = {"command": f"curl -s -o /dev/null -w %{{http_code}} http://{host}/"}
    with dashboard(browser, served) as page:
        question = page.locator(".ask").filter(has_text=host)

        def asked() -> Future[httpx.Response]:
            """A command that waits. Without a page that listens nobody is there to ask, and it is refused at once."""
            running = [served.start(f"/v1/sandboxes/{box}/exec", command)]

            def shown() -> int:
                if running[0].done():
                    running[0] = served.start(f"/v1/sandboxes/{box}/exec", command)
                return question.count()

            until(shown)
            return running[0]

        waiting = asked()
        question.get_by_role("button", name=answer).click()
        assert waiting.result(60).json()["stdout"] == "502"  # allowed, and nobody is there
        question.wait_for(state="detached")
        if answer == "Allow once":
            waiting = asked()
            question.get_by_role("button", name="Deny").click()
        else:
            waiting = served.start(f"/v1/sandboxes/{box}/exec", command)
        assert waiting.result(60).json()["stdout"] == ("403" if answer == "Allow once" else "502")


def test_changes_are_looked_at_again(served: Served, browser: Browser, tmp_path: Path) -> None:
    box = served.create("again", filesystem={"root": str(tmp_path), "overlay": True})
    with dashboard(browser, served) as page:
        page.goto(f"{served.address}/#/s/{box}/changes")
        page.get_by_text("No file differs.").wait_for()
        served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "echo new > later.txt"})
        page.get_by_role("button", name="Look again").click()
        page.locator("details.change").filter(has_text="later.txt").wait_for()


def test_the_record_shows_older_entries_and_holds_still_while_it_is_paused(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> None:
    home = tmp_path_factory.mktemp("o")
    record = Record(str(home / "audit"))
    for number in range(300):
        record.write("policy_decision", f"entry {number}", operation="file", target="/f", result="allowed")
    record.close()
    server = Served(home)
    try:
        with dashboard(browser, server) as page:
            page.get_by_role("link", name="Record").click()
            page.get_by_role("button", name="Show older").click()
            page.get_by_text("entry 10", exact=True).wait_for()
            page.get_by_role("button", name="Pause", exact=True).click()
            record = Record(str(home / "audit"))
            record.write("policy_decision", "while it was paused", operation="file", target="/f", result="allowed")
            record.close()
            page.get_by_role("button", name="Resume", exact=True).click()
            page.get_by_text("while it was paused").wait_for()
    finally:
        server.end()


def test_stop_everything_asks_and_stops(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> None:
    server = Served(tmp_path_factory.mktemp("p"))
    try:
        box = server.create("doomed")
        asked: list[str] = []
        with dashboard(browser, server) as page:

            def answer(dialog: Dialog) -> None:
                asked.append(dialog.message)
                dialog.dismiss() if len(asked) == 1 else dialog.accept()

            page.on("dialog", answer)
            page.get_by_role("button", name="Stop everything").click()
            assert server.http.get(f"/v1/sandboxes/{box}").json()["sandbox"]["status"] == "running"
            page.get_by_role("button", name="Stop everything").click()
            page.get_by_role("alert").filter(has_text="Everything was stopped").wait_for()
        assert len(asked) == 2
        assert server.http.get(f"/v1/sandboxes/{box}").json()["sandbox"]["status"] != "running"
        assert server.http.post("/v1/sandboxes", json={}).status_code != 201
    finally:
        server.end()
