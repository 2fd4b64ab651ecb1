"""The dashboard in a real browser: what a person sees and can do, and what hostile text cannot."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandbox.audit.record import Record
from tests.ports import unused_port
from tests.server.browser import chromium, dashboard
from tests.server.serving import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = [
    "<img src=x onerror=document.title='owned'>",
    "<script>document.title='owned'</script>",
    "\"><svg onload=document.title='owned'>",
    "javascript:document.title='owned'",
    "{{constructor.constructor('document.title=1')()}}",
    "\x1b]0;owned\x07\x1b[2J",
    "\u202etxt.exe",
    "</textarea><style>*{display:none}</style>",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "kept.txt").write_text("one\n")
    return tmp_path


def overlay(served: Served, project: Path, name: str, command: str) -> str:
    box = served.create(name, filesystem={"root": str(project), "overlay": True})
    assert served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": command}).json()["exit_code"] == 0
    return box


def test_without_a_token_the_page_shows_nothing_and_asks_for_one(served: Served, browser: Browser) -> None:
    with dashboard(browser, served, token="sbx_wrong") as page:
        page.get_by_role("alert").filter(has_text="not valid").wait_for()
        page.get_by_label("Token").fill(served.token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Sandboxes").wait_for()


def test_who_has_no_token_yet_can_choose_a_language(served: Served, browser: Browser) -> None:
    with dashboard(browser, served, token="sbx_wrong") as page:
        page.get_by_role("alert").filter(has_text="not valid").wait_for()
        assert page.locator("#language option").count() == 3
        assert page.locator("#connection").is_hidden()
        page.locator("#language").select_option("zh-CN")
        page.get_by_role("button", name="登录").wait_for()


def test_an_address_with_a_tab_that_does_not_exist_shows_the_record(served: Served, browser: Browser) -> None:
    box = served.create()
    with dashboard(browser, served) as page:
        page.get_by_role("heading", name="Sandboxes").wait_for()
        page.goto(f"{served.address}/#/s/{box}/constructor")
        page.get_by_role("tab", name="Record", selected=True).wait_for()
        page.locator(".feed .entry").first.wait_for()


def test_a_managed_sandbox_is_shown_by_the_managers_name(served: Served, browser: Browser) -> None:
    assert served.http.put("/v1/managers/nightly", json={}).status_code == 200
    assert served.http.post("/v1/managers/nightly/start").status_code == 200
    with dashboard(browser, served) as page:
        page.get_by_role("row").filter(has_text="nightly").get_by_text("running").wait_for()
    served.http.post("/v1/managers/nightly/stop")


def test_the_token_does_not_stay_in_the_address(served: Served, browser: Browser) -> None:
    with dashboard(browser, served) as page:
        page.get_by_role("heading", name="Sandboxes").wait_for()
        assert served.token not in page.url
        page.reload()
        page.get_by_role("heading", name="Sandboxes").wait_for()


def test_a_sandbox_appears_and_its_end_button_ends_it(served: Served, browser: Browser) -> None:
    with dashboard(browser, served) as page:
        page.get_by_role("heading", name="Sandboxes").wait_for()
        box = served.create("research")
        row = page.get_by_role("row").filter(has_text="research")
        row.get_by_text("running").wait_for()
        row.get_by_role("button", name="End").click()
        page.get_by_text("Ended", exact=True).click()
        page.get_by_role("row").filter(has_text="research").filter(has_text="stopped").wait_for()
        assert served.http.get(f"/v1/sandboxes/{box}").json()["sandbox"]["status"] == "stopped"


def test_a_refusal_says_why_and_its_button_allows_the_host(served: Served, browser: Browser) -> None:
    box = served.create("curious")
    with dashboard(browser, served) as page:
        served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "curl -s http://docs.example/"})
        page.get_by_role("link", name="Record").click()
        entry = page.get_by_role("listitem").filter(has_text="docs.example:80").first
        entry.get_by_text("Why?").click()
        entry.get_by_text("to allow it, add").wait_for()
        entry.get_by_role("button", name="Allow for this sandbox").click()
        page.get_by_role("alert").filter(has_text="is allowed for this sandbox").wait_for()
        allowed = served.http.get(f"/v1/sandboxes/{box}/network").json()["network"]["allowed_hosts"]
        assert allowed == ["docs.example:80"]


def test_a_refusal_can_be_asked_about_the_next_time_and_allowed_once(served: Served, browser: Browser) -> None:
    box = served.create("asking")
    run = f"/v1/sandboxes/{box}/exec"
    with dashboard(browser, served) as page:
        served.http.post(run, json={"command": "curl -s http://once.example/"})
        page.goto(f"{served.address}/#/s/{box}")
        entry = page.get_by_role("listitem").filter(has_text="once.example:80").first
        entry.get_by_text("Why?").click()
        entry.get_by_role("button", name="Ask me next time").click()
        page.get_by_role("alert").filter(has_text="next attempt waits").wait_for()
        command = "curl -s -o /dev/null -w %{http_code} http://once.example/"
        waiting = served.start(run, {"command": command})
        question = page.locator(".ask").filter(has_text="once.example")
        question.get_by_role("button", name="Deny").click()
        assert waiting.result(60).json()["stdout"] == "403"
        question.wait_for(state="detached")


def test_changes_are_reviewed_and_applied_or_discarded_file_by_file(
    served: Served, browser: Browser, project: Path
) -> None:
    box = overlay(served, project, "editor", "echo two > kept.txt; echo new > good.txt; echo bad > bad.txt")
    with dashboard(browser, served) as page:
        page.goto(f"{served.address}/#/s/{box}/changes")
        kept = page.locator("details.change").filter(has_text="kept.txt")
        kept.locator("summary").click()
        kept.get_by_text("+two").wait_for()
        kept.get_by_role("button", name="Apply").click()
        page.get_by_text("1 applied").wait_for()
        assert (project / "kept.txt").read_text() == "two\n" and not (project / "good.txt").exists()
        bad = page.locator("details.change").filter(has_text="bad.txt")
        bad.locator("summary").click()
        bad.get_by_role("button", name="Discard").click()
        bad.wait_for(state="detached")
        page.get_by_role("button", name="Apply all").click()
        page.get_by_text("No file differs.").wait_for()
    assert (project / "good.txt").read_text() == "new\n" and not (project / "bad.txt").exists()


def test_all_changes_of_an_ended_sandbox_can_be_discarded(served: Served, browser: Browser, project: Path) -> None:
    box = overlay(served, project, "loser", "echo bad > bad.txt")
    served.http.delete(f"/v1/sandboxes/{box}")
    with dashboard(browser, served) as page:
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(f"{served.address}/#/s/{box}/changes")
        page.get_by_role("button", name="Discard all").click()
        page.get_by_role("alert").filter(has_text="Discarded").wait_for()
    assert served.http.get(f"/v1/sandboxes/{box}/changes").status_code == 404
    assert not (project / "bad.txt").exists()


def test_the_policy_in_force_is_shown(served: Served, browser: Browser) -> None:
    box = served.create("ruled", network={"denied_hosts": ["evil.example"]})
    with dashboard(browser, served) as page:
        page.goto(f"{served.address}/#/s/{box}/policy")
        page.get_by_text("evil.example").wait_for()


def test_a_terminal_in_the_browser_runs_a_shell_inside(served: Served, browser: Browser) -> None:
    box = served.create("shell")
    with dashboard(browser, served) as page:
        page.goto(f"{served.address}/#/s/{box}/terminal")
        frame = page.frame_locator("iframe.terminal")
        frame.locator(".xterm-helper-textarea").wait_for(state="attached")
        frame.locator(".xterm-screen").click()
        page.keyboard.type("echo from-$((40+2)) > typed.txt; exit 3\n")
        frame.get_by_text("It ended with status 3.").wait_for()
    text = served.http.get(f"/v1/sandboxes/{box}/files/content", params={"path": "typed.txt"})
    assert text.status_code == 200 and "from-42" in text.text


def test_what_is_typed_before_the_terminal_is_connected_arrives(served: Served, browser: Browser) -> None:
    box = served.create("early")
    with dashboard(browser, served) as page:
        held: list[Any] = []
        page.route("**/v1/tickets", lambda one: held.append(one))
        page.goto(f"{served.address}/#/s/{box}/terminal")
        frame = page.frame_locator("iframe.terminal")
        frame.locator(".xterm-helper-textarea").wait_for(state="attached")
        frame.locator(".xterm-screen").click()
        page.keyboard.type("exit 4\n")
        (ticket,) = held
        ticket.continue_()
        frame.get_by_text("It ended with status 4.").wait_for()


def test_the_record_is_verified_and_an_altered_one_is_reported(tmp_path: Path, browser: Browser) -> None:
    served = Served(tmp_path)
    try:
        served.create()
        with dashboard(browser, served) as page:
            page.get_by_role("button", name="Record verified").wait_for()
            (log,) = [path for path in tmp_path.rglob("*.jsonl") if path.stat().st_size]
            log.write_text(log.read_text().replace("ready", "steady"))
            page.get_by_role("button", name="Record verified").click()
            page.get_by_role("button", name="RECORD ALTERED").wait_for()
    finally:
        served.end()


def test_the_page_comes_back_after_the_server_restarts(tmp_path: Path, browser: Browser) -> None:
    port = str(unused_port())
    served = Served(tmp_path, "--port", port)
    try:
        with dashboard(browser, served) as page:
            page.get_by_text("Live", exact=True).wait_for()
            served.end(signal.SIGKILL)
            page.get_by_text("Connection lost").wait_for()
            again = Served(tmp_path, "--port", port)
            try:
                again.create("reborn")
                page.get_by_role("row").filter(has_text="reborn").wait_for()
                page.get_by_text("Live", exact=True).wait_for()
            finally:
                again.end()
    finally:
        served.end()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose record has ten thousand entries, hostile text among them."""
    home = tmp_path_factory.mktemp("c")
    record = Record(str(home / "audit"))
    for number in range(10_000):
        record.write("policy_decision", f"entry {number}", operation="file", target=f"/f{number}", result="allowed")
    for text in HOSTILE:
        record.write(
            "policy_decision", text, severity="warn", operation="network", target=text, result="blocked",
            policy=text, reason=text, metadata={"host": text, "port": 80},
        )  # fmt: skip
    record.close()
    server = Served(home)
    yield server
    server.end()


def test_ten_thousand_entries_are_searched_and_stay_few_in_the_page(crowded: Served, browser: Browser) -> None:
    from playwright.sync_api import expect

    with dashboard(browser, crowded) as page:
        page.get_by_role("link", name="Record").click()
        page.locator(".entry").first.wait_for()
        assert page.locator(".entry").count() <= 200
        page.get_by_role("searchbox", name="Text").fill("entry 9876")
        expect(page.locator(".entry")).to_have_count(1, timeout=90_000)  # until then, older rows may be there, too
        page.get_by_text("entry 9876").wait_for()


def test_hostile_text_is_shown_as_text_and_does_nothing(crowded: Served, browser: Browser) -> None:
    with dashboard(browser, crowded) as page:
        page.get_by_role("link", name="Record").click()
        page.get_by_label("Refused only").check()
        page.locator(".entry").nth(len(HOSTILE) - 1).wait_for()
        for summary in page.locator(".entry .why summary").all():
            summary.click()
        shown = page.locator("main").inner_text()
        assert all(text in shown for text in HOSTILE if text.isprintable() and text.isascii())
        assert "\\u001b]0;owned" in shown and "\\u202etxt.exe" in shown and "\u202e" not in shown
        assert page.title() == "sandbox"
        assert page.locator("main img, main script, main svg, main style").count() == 0


def test_a_command_with_hostile_text_is_a_row_like_any_other(served: Served, browser: Browser, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "sandbox.cli.main", "run", "--detach", "--", "sh", "-c", "sleep 600", *HOSTILE]
    ran = subprocess.run(words, env=served.environment, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    with dashboard(browser, served) as page:
        row = page.get_by_role("row").filter(has_text="sleep 600")
        row.get_by_text("running").wait_for()
        assert page.title() == "sandbox" and page.locator("main img").count() == 0
        row.get_by_role("button", name="End").click()
        row.get_by_text("running").wait_for(state="detached")


def test_two_windows_see_the_same(served: Served, browser: Browser) -> None:
    with dashboard(browser, served) as one, dashboard(browser, served) as other:
        served.create("shared")
        one.get_by_role("row").filter(has_text="shared").get_by_text("running").wait_for()
        other.get_by_role("row").filter(has_text="shared").get_by_role("button", name="End").click()
        one.get_by_role("row").filter(has_text="shared").get_by_text("running").wait_for(state="detached")


@pytest.mark.parametrize(("language", "heading"), [("zh-CN", "沙箱"), ("zh-TW", "沙箱"), ("en-GB", "Sandboxes")])
def test_it_speaks_the_browsers_language(served: Served, browser: Browser, language: str, heading: str) -> None:
    with dashboard(browser, served, locale=language) as page:
        page.get_by_role("heading", name=heading).wait_for()


def test_every_text_of_the_page_is_translated() -> None:
    here = Path(__file__).parents[2] / "src/sandbox/server/dashboard"
    used: set[str] = set()
    for file in here.glob("js/*.js"):
        used |= set(re.findall(r'\bt\("((?:[^"\\]|\\.)*)"', file.read_text()))
    used |= set(re.findall(r'data-(?:text|label)="([^"]*)"', (here / "index.html").read_text()))
    for language in ("zh-CN", "zh-TW"):
        table = (here / "js" / f"{language}.js").read_text()
        missing = {text for text in used if f"{json.dumps(text, ensure_ascii=False)}:" not in table}
        assert not missing, (language, missing)


def test_it_works_by_keyboard_and_fits_a_phone(served: Served, browser: Browser) -> None:
    box = served.create("small")
    phone: dict[str, Any] = {"viewport": {"width": 375, "height": 700}, "color_scheme": "dark"}
    with dashboard(browser, served, **phone) as page:
        page.get_by_role("row").filter(has_text="small").wait_for()
        wider = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert not page.evaluate(wider)
        page.goto(f"{served.address}/#/s/{box}")
        page.get_by_role("tab", name="Record").focus()
        page.keyboard.press("ArrowRight")
        page.get_by_role("tab", name="Changes", selected=True).wait_for()
        assert not page.evaluate(wider)
        unnamed = "[...document.querySelectorAll('button, input, select, a, iframe')].filter(e => e.checkVisibility() && !(e.textContent.trim() || e.ariaLabel || e.title || e.labels?.length || e.getAttribute('aria-label'))).length"  # noqa: E501
        assert page.evaluate(unnamed) == 0


def test_the_page_without_the_terminal_is_small(served: Served) -> None:
    here = Path(__file__).parents[2] / "src/sandbox/server/dashboard"
    files = [path for path in here.rglob("*") if path.is_file() and "vendor" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 200_000
    for path in files:
        assert served.http.get("/" + path.relative_to(here).as_posix()).status_code == 200


def test_nothing_but_the_pages_own_files_is_served(served: Served) -> None:
    for path in ("/js/../../app.py", "/js/%2e%2e/%2e%2e/app.py", "/vendor/", "/js/", "/js/nothing.js", "/app.py"):
        assert served.client(None).get(path).status_code in (401, 404), path


def test_pages_are_framed_by_nobody_and_load_nothing_from_elsewhere(served: Served) -> None:
    policy = served.client(None).get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    terminal = served.client(None).get("/terminal.html").headers["content-security-policy"]
    assert "frame-ancestors 'self'" in terminal and "script-src 'self';" in terminal


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core, the accessibility checker, from npm."""
    place = tmp_path_factory.mktemp("axe")
    words = ["npm", "install", "--prefix", str(place), "--no-fund", "--no-audit", "--ignore-scripts", "axe-core@4"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (place / "node_modules/axe-core/axe.min.js").read_text()


RULES = "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})"


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node and npm (scripts/setup dev)")
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_an_accessibility_checker_finds_nothing_on_any_page(
    served: Served, browser: Browser, project: Path, axe: str, colours: str
) -> None:
    box = overlay(served, project, f"checked-{colours}", "echo two > kept.txt; curl -s http://refused.example/; true")
    with dashboard(browser, served, token="sbx_wrong", color_scheme=colours) as page:
        page.get_by_role("alert").filter(has_text="not valid").wait_for()
        page.evaluate(axe)
        assert found(page.evaluate(RULES)) == []
    with dashboard(browser, served, color_scheme=colours) as page:
        page.get_by_role("row").filter(has_text=f"checked-{colours}").wait_for()
        page.evaluate(axe)
        assert found(page.evaluate(RULES)) == []
        for tab, shown in (("activity", "refused.example"), ("changes", "kept.txt"), ("policy", "allowed_hosts")):
            page.evaluate("place => { location.hash = place }", f"#/s/{box}/{tab}")
            page.get_by_text(shown).first.wait_for()
            assert found(page.evaluate(RULES)) == [], tab


def found(report: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in report["violations"]]


def test_a_sandbox_is_paused_and_resumed_by_a_button(served: Served, browser: Browser) -> None:
    box = served.create("pausing")
    with dashboard(browser, served) as page:
        page.get_by_role("heading", name="Sandboxes").wait_for()
        page.goto(f"{served.address}/#/s/{box}")
        page.get_by_role("button", name="Pause sandbox").click()
        page.get_by_role("button", name="Resume sandbox").click()
        page.get_by_role("button", name="Pause sandbox").wait_for()
        assert served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "true"}).status_code == 200


def test_the_name_of_a_sandbox_that_has_ended_is_still_shown(served: Served) -> None:
    box = served.create("short-lived")
    served.http.delete(f"/v1/sandboxes/{box}")
    shown = {one["id"]: one["name"] for one in served.http.get("/v1/sandboxes").json()["sandboxes"]}
    assert shown[box] == "short-lived"
    with served.limited("read", sandboxes=["short-lived"]) as other:
        assert other.get("/v1/sandboxes").json()["sandboxes"] == []  # the name is free: it is nobody's right any more
    assert served.create("short-lived") != box


CLUSTERED = """
import json, os, sys
from sandbox.sandboxes import Sandboxes
from sandbox.server.run import serve
from sandbox.server.settings import Settings

found = json.loads(sys.argv[1])
settings = Settings(record=os.path.join(os.environ["SANDBOX_HOME"], "audit"), port=0, cluster=lambda: found)
sys.exit(serve(Sandboxes(tell=print), settings))
"""


def test_the_nodes_of_a_cluster_are_shown(tmp_path: Path, browser: Browser) -> None:
    node = {"node": "0a1b2c3d4e5f", "address": "10.0.0.7", "cpus": 16.0, "memory": 2.0**36, "sandboxes": 12, "ready": 3}
    most = {"sandboxes": 20.0, "cpus": None, "memory": None}
    team = {"team": HOSTILE[0], "priority": 5, "used": {"sandboxes": 12.0, "cpus": 6.0, "memory": 0.0}, "most": most}
    found = {
        "nodes": [
            {**node, "state": "up", "record": f"the record was rolled back {HOSTILE[0]}"},
            {**node, "node": HOSTILE[1], "state": "silent", "record": ""},
        ],
        "teams": [{**team, "waiting": 2}], "queue": [], "waiting": 2, "problem": "",
    }  # fmt: skip
    (tmp_path / "home").mkdir()
    served = Served(tmp_path / "home", program=[sys.executable, "-c", CLUSTERED, json.dumps(found)])
    try:
        with dashboard(browser, served) as page:
            page.get_by_role("link", name="Nodes").click()
            page.get_by_role("cell", name="0a1b2c3d4e5f").wait_for()
            page.get_by_text("2 wait for room").wait_for()
            assert page.get_by_role("cell", name="12 / 20").count() == 1
            assert page.get_by_role("cell", name="silent").count() == 1
            assert page.get_by_text("the record was rolled back").count() == 1
            assert page.title() == "sandbox"
    finally:
        served.end()


def test_without_a_cluster_there_is_no_page_of_nodes(served: Served, browser: Browser) -> None:
    assert served.http.get("/v1/nodes").status_code == 404
    with dashboard(browser, served) as page:
        page.get_by_role("heading", name="Sandboxes").wait_for()
        page.get_by_role("link", name="Record").wait_for()
        assert page.get_by_role("link", name="Nodes").count() == 0
