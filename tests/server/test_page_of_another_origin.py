"""A page of another origin in a real browser, which even knows a valid token, gets nothing from the server."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.browser import chromium
from tests.server.serving import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Each answers what it got, or how it failed.
ATTEMPTS = {
    "read with the token": "(at, token) => fetch(at + '/v1/sandboxes', {headers: {Authorization: 'Bearer ' + token}})",
    "read without a preflight": "(at, token) => fetch(at + '/v1/health', {mode: 'cors'})",
    "create with the token": (
        "(at, token) => fetch(at + '/v1/sandboxes', {method: 'POST', body: '{}', headers: {'X-API-Key': token}})"
    ),
    "create as a simple request": (
        "(at, token) => fetch(at + '/v1/sandboxes', {method: 'POST', body: new Blob(['{}'], {type: 'text/plain'})})"
    ),
}


class _Evil(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>evil</title><body>")

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def evil(browser: Browser) -> Iterator[Page]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Evil)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    yield page
    page.close()
    server.shutdown()
    server.server_close()


def sandboxes(served: Served) -> int:
    return len(served.http.get("/v1/sandboxes").json()["sandboxes"])


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_its_requests_are_neither_answered_nor_carried_out(served: Served, evil: Page, attempt: str) -> None:
    before = sandboxes(served)
    script = f"([at, token]) => ({ATTEMPTS[attempt]})(at, token).then(r => r.text(), e => 'failed ' + e.name)"
    assert evil.evaluate(script, [served.address, served.token]) == "failed TypeError"
    assert sandboxes(served) == before


def test_its_form_creates_nothing(served: Served, evil: Page) -> None:
    before = sandboxes(served)
    with evil.expect_response("**/v1/sandboxes") as answered:
        evil.evaluate(
            """at => { const form = document.body.appendChild(document.createElement('form'));
            form.method = 'POST'; form.action = at + '/v1/sandboxes'; form.enctype = 'text/plain';
            const field = form.appendChild(document.createElement('input')); field.name = '{"a":"'; field.value = '"}';
            form.submit() }""",
            served.address,
        )
    assert answered.value.status == 403
    assert sandboxes(served) == before


def test_its_websocket_is_refused_even_with_a_ticket(served: Served, evil: Page, box: str) -> None:
    ticket = served.http.post("/v1/tickets", json={}).json()["protocol"]
    script = """([at, ticket]) => new Promise(done => { const line = new WebSocket(at, [ticket]);
        line.onopen = () => done('open'); line.onerror = () => done('refused') })"""
    words = [f"{served.address.replace('http', 'ws', 1)}/v1/sandboxes/{box}/terminal", ticket]
    assert evil.evaluate(script, words) == "refused"
    evil.goto(f"{served.address}/")
    assert evil.evaluate(script, words) == "open"  # for a page of the server's own the same ticket is good


def test_it_cannot_show_the_dashboard_in_a_frame_nor_load_its_scripts(served: Served, evil: Page) -> None:
    framed = """at => new Promise(done => { const frame = document.createElement('iframe');
        frame.onload = () => { try { done(frame.contentDocument ? 'empty' : 'blocked') } catch { done('blocked') } };
        frame.src = at + '/'; document.body.append(frame) })"""
    with evil.expect_console_message(lambda said: "frame-ancestors" in said.text):
        evil.evaluate(framed, served.address)
    script = """at => new Promise(done => { const one = document.createElement('script'); one.type = 'module';
        one.onload = () => done('loaded'); one.onerror = () => done('refused');
        one.src = at + '/js/api.js'; document.body.append(one) })"""
    assert evil.evaluate(script, served.address) == "refused"
