"""Looking at the screen and driving the browser over the server: behind its token, in the dashboard's viewer."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import sync_playwright

from sandbox.desktop.rfb import Filter
from sandbox.errors import SandboxError
from sandbox.websocket import WebSocketClient
from tests.desktop.desks import until
from tests.server.browser import chromium, dashboard
from tests.server.serving import Served

GREETING = b"RFB 003.008\n\x01\x01"
KEY, POINTER, PASTE = b"\x04\x01\0\0\0\0\0a", b"\x05\x01\0\x01\0\x01", b"\x06\0\0\0\0\0\0\x02hi"
ASK, FORMAT, RESIZE = b"\x03" + bytes(9), bytes(20), b"\xfb\0\x05\0\x05\0\x01\0" + bytes(16)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("h"))
    assert server.http.post("/api/sandbox/start").status_code == 200
    yield server
    server.end()


def test_a_looker_on_has_no_mouse_keyboard_or_clipboard() -> None:
    said = GREETING + ASK + KEY + POINTER + PASTE + RESIZE + FORMAT
    assert Filter(control=False).feed(said) == GREETING + ASK + FORMAT


def test_who_takes_over_has_mouse_and_keyboard_but_no_clipboard_and_no_other_size() -> None:
    assert Filter(control=True).feed(GREETING + KEY + PASTE + POINTER + RESIZE) == GREETING + KEY + POINTER


@given(st.lists(st.integers(1, 20), max_size=30))
def test_pieces_of_any_size_are_read_as_the_whole(sizes: list[int]) -> None:
    said, judged, out, at = GREETING + ASK + PASTE + KEY + FORMAT, Filter(control=False), b"", 0
    for size in [*sizes, 1000]:
        out += judged.feed(said[at : at + size]) or b""
        at += size
    assert out == GREETING + ASK + FORMAT


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_end_the_connection(data: bytes) -> None:
    passed = Filter(control=False).feed(GREETING + data)
    assert passed is None or passed.startswith(GREETING)


def test_a_message_of_any_length_is_not_held() -> None:
    assert Filter(control=True).feed(GREETING + b"\x06\0\0\0\x7f\xff\xff\xff") is None


def test_the_screen_is_shown_only_with_a_token_that_may_run_commands(served: Served) -> None:
    box = served.http.get("/api/sandbox/status").json()["containerId"]
    url = f"{served.address}/v1/sandboxes/{box}/vnc"
    line = WebSocketClient(url, {"Authorization": f"Bearer {served.token}"})
    assert line.receive()[:4] == b"RFB "
    line.close()
    for token in (served.new_token("read"), "wrong"):
        with pytest.raises(SandboxError):
            WebSocketClient(url, {"Authorization": f"Bearer {token}"})


def test_the_browser_is_driven_with_the_servers_token_and_not_without(served: Served) -> None:
    told = served.http.get("/api/sandbox/browser", timeout=60)
    assert told.status_code == 200, told.text
    assert set(told.json()) == {"cdpEndpoint", "wsEndpoint", "noVncEndpoint"}
    headers = {"Authorization": f"Bearer {served.token}"}
    with sync_playwright() as playwright:
        for endpoint in (told.json()["wsEndpoint"], told.json()["cdpEndpoint"]):
            browser = playwright.chromium.connect_over_cdp(endpoint, headers=headers)
            page = browser.contexts[0].new_page()
            page.set_content("<title>driven</title>")
            assert page.title() == "driven"
            browser.close()
        with pytest.raises(Exception, match="401"):
            playwright.chromium.connect_over_cdp(told.json()["wsEndpoint"])


@pytest.mark.desktop
def test_the_dashboards_viewer_draws_the_screen_and_can_take_over(served: Served) -> None:
    box = served.http.get("/api/sandbox/status").json()["containerId"]
    assert served.http.get("/api/sandbox/screen/screenshot").status_code == 200
    opened = {"command": "setsid xterm -geometry 150x45+40+40 -e 'ls -la /; cat' >/dev/null 2>&1 </dev/null &"}
    assert served.http.post("/api/sandbox/exec", json=opened).status_code == 200
    until(lambda: served.http.get("/api/sandbox/screen/windows").json()["windows"])
    with chromium() as browser, dashboard(browser, served) as page:
        page.goto(f"{served.address}/#/s/{box}/screen")
        screen = page.frame_locator("iframe")
        screen.get_by_text("You are looking on.").wait_for()
        screen.get_by_role("button", name="Take over").click()
        screen.get_by_text("You have taken over.").wait_for()
        screen.locator("canvas").wait_for()
        if place := os.environ.get("SANDBOX_SCREENSHOTS"):
            page.screenshot(path=f"{place}/viewer.png")
