"""The dashboard draws its lists again and again: what a person has opened, focused or selected in them stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandbox.audit.record import Record
from tests.server.browser import chromium, dashboard
from tests.server.serving import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

FOCUSED = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
SELECTED = "String(getSelection())"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def refused(served: Served, box: str, host: str) -> None:
    served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": f"curl -s http://{host}/"})


def select(text: Locator) -> None:
    text.evaluate("node => getSelection().selectAllChildren(node)")


def top(row: Locator) -> float:
    found: float = row.evaluate("node => node.getBoundingClientRect().top")
    return found


def unread(served: Served, count: int) -> None:
    """Entries that somebody else writes meanwhile."""
    record = Record(str(served.home / "audit"))
    for number in range(count):
        record.write("policy_decision", f"later {number}", operation="file", target="/f", result="allowed")
    record.close()


def test_a_row_of_the_list_keeps_focus_and_selection(served: Served, browser: Browser) -> None:
    served.create("focused")
    with dashboard(browser, served) as page:
        row = page.get_by_role("row").filter(has_text="focused")
        row.get_by_role("button", name="End").focus()
        select(row.get_by_role("link"))
        served.create("newcomer")
        page.get_by_role("row").filter(has_text="newcomer").wait_for()
        assert page.evaluate(FOCUSED) == "End focused"
        assert page.evaluate(SELECTED) == "focused"


def test_the_head_of_a_sandbox_keeps_focus_and_selection(served: Served, browser: Browser) -> None:
    box = served.create("headed")
    with dashboard(browser, served) as page:
        page.goto(f"{served.address}/#/s/{box}")
        page.get_by_role("button", name="End").focus()
        select(page.locator(".facts dd").first)
        before = page.evaluate(SELECTED)
        served.http.post(f"/v1/sandboxes/{box}/pause")
        page.locator("h1 .state").filter(has_text="paused").wait_for()
        assert page.evaluate(FOCUSED) == "End"
        assert page.evaluate(SELECTED) == before != ""


def test_a_refusal_that_is_read_stays_open_and_where_it_is(served: Served, browser: Browser) -> None:
    from playwright.sync_api import expect

    box = served.create("read")
    refused(served, box, "read.example")
    with dashboard(browser, served, viewport={"width": 900, "height": 500}) as page:
        page.get_by_role("link", name="Record").click()
        entry = page.get_by_role("listitem").filter(has_text="read.example:80").first
        entry.get_by_text("Why?").click()
        allow = entry.get_by_role("button", name="Always allow")
        allow.focus()
        before = top(entry)
        for written in (
            5,
            150,
            150,
        ):  # first at the top of the page, then scrolled; in the end past those that are shown
            unread(served, written)
            page.get_by_text(f"later {written - 1}", exact=True).first.wait_for(state="attached")
            assert abs(top(entry) - before) < 2
        assert page.evaluate(FOCUSED) == "Always allow"
        served.http.delete(f"/v1/sandboxes/{box}")
        entry.get_by_text("This sandbox has ended").wait_for()  # still open
        expect(allow).to_have_count(0)


def test_a_refusal_offers_its_buttons_although_the_sandboxes_were_listed_later(
    served: Served, browser: Browser
) -> None:
    box = served.create("slow")
    refused(served, box, "slow.example")
    with dashboard(browser, served, token="sbx_wrong") as page:
        page.get_by_role("alert").filter(has_text="not valid").wait_for()
        held: list[Any] = []
        page.route("**/v1/sandboxes", lambda one: held.append(one))
        page.goto(f"{served.address}/#/s/{box}")
        page.get_by_label("Token").fill(served.token)
        page.get_by_role("button", name="Sign in").click()
        entry = page.get_by_role("listitem").filter(has_text="slow.example:80").first
        entry.get_by_text("Why?").click()
        entry.get_by_text("Rule:").wait_for()
        held.pop().continue_()  # the page asks again only after this one
        page.unroute("**/v1/sandboxes")
        entry.get_by_role("button", name="Always allow").wait_for()
        assert entry.get_by_text("This sandbox has ended").count() == 0


def test_the_records_filters_know_what_came_after_the_page(served: Served, browser: Browser) -> None:
    with dashboard(browser, served) as page:
        page.get_by_role("link", name="Record").click()
        page.get_by_label("Severity").wait_for()
        box = served.create("filtered")
        choices = page.get_by_label("Sandbox", exact=True)
        choices.locator("option", has_text="filtered").wait_for(state="attached")
        choices.select_option(box)
        served.create("another")
        choices.locator("option", has_text="another").wait_for(state="attached")
        assert choices.input_value() == box


def test_a_question_keeps_focus_when_another_one_comes(served: Served, browser: Browser) -> None:
    box = served.create("questioned", network={"ask": True})
    with dashboard(browser, served) as page:
        page.get_by_text("Live", exact=True).wait_for()
        first = asked(served, page, box, "first.example")
        first.get_by_role("button", name="Deny").focus()
        second = asked(served, page, box, "second.example")
        assert page.evaluate(FOCUSED) == "Deny"
        page.keyboard.press("Enter")
        first.wait_for(state="detached")
        assert second.count() == 1
        second.get_by_role("button", name="Deny").click()
        second.wait_for(state="detached")


def asked(served: Served, page: Page, box: str, host: str) -> Locator:
    """A question about that host; again as long as nobody listened, because then it is refused at once."""
    question = page.locator(".ask").filter(has_text=host)
    for _ in range(50):
        waiting = served.start(f"/v1/sandboxes/{box}/exec", {"command": f"curl -s http://{host}/"})
        while not waiting.done():
            if question.count():
                return question
    raise AssertionError("no question was shown")


def test_a_diff_that_is_read_stays_open_and_shows_what_is_new(served: Served, browser: Browser, tmp_path: Path) -> None:
    box = served.create("differing", filesystem={"root": str(tmp_path), "overlay": True})
    run = f"/v1/sandboxes/{box}/exec"
    served.http.post(run, json={"command": "echo one > read.txt"})
    with dashboard(browser, served) as page:
        page.goto(f"{served.address}/#/s/{box}/changes")
        change = page.locator("details.change").filter(has_text="read.txt")
        change.locator("summary").click()
        change.get_by_text("+one").wait_for()
        select(change.get_by_text("+one"))
        served.http.post(run, json={"command": "echo two >> read.txt; echo a > another.txt"})
        page.get_by_role("button", name="Look again").focus()
        page.keyboard.press("Enter")
        change.get_by_text("+two").wait_for()
        assert page.evaluate(FOCUSED) == "Look again"
        assert "+one" in page.evaluate(SELECTED)
        assert page.locator("details.change[open]").count() == 1
