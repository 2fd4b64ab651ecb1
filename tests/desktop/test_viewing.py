"""Looking at the screen and driving the browser over the server: behind its token, in the dashboard's viewer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import sync_playwright

from sandbox import Sandbox
from sandbox.desktop.rfb import Filter, Introduction
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


def test_taking_over_gives_mouse_and_keyboard_but_no_clipboard_and_no_other_size() -> None:
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


def said(width: int = 800, height: int = 600, name: bytes = b"x", kinds: bytes = b"\x01") -> bytes:
    """How a display begins."""
    screen = width.to_bytes(2, "big") + height.to_bytes(2, "big") + bytes(16) + len(name).to_bytes(4, "big") + name
    return b"RFB 003.008\n" + bytes([len(kinds)]) + kinds + bytes(4) + screen


def test_a_display_that_begins_as_sandbox_does_is_passed_on_under_sandboxs_own_name() -> None:
    judged = Introduction(1000 * 1000)
    assert judged.feed(said(name=b"<script>") + b"picture") == said(name=b"sandbox") + b"picture"
    assert judged.feed(b"more") == b"more"


@pytest.mark.parametrize(
    "display",
    [
        *(said(kinds=b"\x02"), said(kinds=b"\x05\x10\x1e"), said(kinds=b""), said(1001, 1000), said(65535, 65535)),
        *(said(name=b"x" * 4097), b"RFB 003.003\n\0\0\0\x01", b"HTTP/1.1 200 OK\r\n\r\n", said()[:14] + b"\0\0\0\x01"),
    ],
)
def test_a_display_that_asks_for_a_password_or_is_huge_or_no_display_is_not_passed_on(display: bytes) -> None:
    assert Introduction(1000 * 1000).feed(display) is None


@given(st.lists(st.integers(1, 20), max_size=30))
def test_a_display_that_sends_in_pieces_is_read_whole(sizes: list[int]) -> None:
    whole, judged, out, at = said(name=b"long name", kinds=b"\x13\x01") + b"picture", Introduction(2**20), b"", 0
    for size in [*sizes, 1000]:
        out += judged.feed(whole[at : at + size]) or b""
        at += size
    assert out == said(name=b"sandbox") + b"picture"


@given(st.binary(max_size=300))
def test_any_bytes_of_a_display_are_passed_on_or_end_the_connection(data: bytes) -> None:
    passed = Introduction(2**20).feed(b"RFB 003.008\n" + data)
    assert passed is None or passed.startswith(b"RFB 003.008\n")


def test_the_screen_is_shown_only_with_a_token_that_may_run_commands(served: Served) -> None:
    box = served.http.get("/api/sandbox/status").json()["containerId"]
    url = f"{served.address}/v1/sandboxes/{box}/vnc"
    line = WebSocketClient(url, {"Authorization": f"Bearer {served.token}"})
    assert line.receive()[:4] == b"RFB "
    line.close()
    for token in (served.new_token("read"), "wrong"):
        with pytest.raises(SandboxError):
            WebSocketClient(url, {"Authorization": f"Bearer {token}"})


def test_the_screen_of_another_processs_sandbox_is_shown_to_the_same_tokens_and_is_on_its_record(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(served.home))
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        url = f"{served.address}/v1/sandboxes/{sandbox.id}/vnc"
        line = WebSocketClient(f"{url}?control=true", {"Authorization": f"Bearer {served.token}"})
        greeting = b""
        while len(greeting) < 12:
            greeting += line.receive()
        assert greeting[:4] == b"RFB "
        line.send(greeting[:12])  # and what we say arrives: the display goes on with how it can be proved who we are
        assert line.receive()
        line.close()
        assert "screen taken over" in (served.home / "audit" / "audit.jsonl").read_text()
        for token in (served.new_token("read"), served.new_token("exec", sandboxes=["another"]), "wrong"):
            with pytest.raises(SandboxError):
                WebSocketClient(url, {"Authorization": f"Bearer {token}"})


def test_a_sandbox_without_a_desktop_shows_no_screen(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(served.home))
    with Sandbox({"filesystem": {"root": str(tmp_path)}, "desktop": {"enabled": False}}) as sandbox:
        with pytest.raises(SandboxError, match="no desktop"):
            sandbox.desktop._look(False)
        with pytest.raises(SandboxError):
            url = f"{served.address}/v1/sandboxes/{sandbox.id}/vnc"
            WebSocketClient(url, {"Authorization": f"Bearer {served.token}"})


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


# A display of the tenant's own making that says, once it is looked at, that it is 65535 pixels wide and high.
HUGE = """
import os, socket
os.rename("/tmp/.desktop/vnc", "/tmp/.desktop/old")
line = socket.socket(socket.AF_UNIX); line.bind("/tmp/.desktop/vnc"); line.listen()
print("listens", flush=True)
one, _ = line.accept()
one.sendall(b"RFB 003.008\\n\\x01\\x01" + bytes(4) + b"\\0\\x20\\0\\x20")
one.sendall(b"\\x20\\x18\\0\\x01" + b"\\0\\xff" * 3 + b"\\x10\\x08" + bytes(8))
grown = (-223 & 0xffffffff).to_bytes(4, "big")
while one.recv(4096):
    one.sendall(b"\\0\\0\\0\\x01" + bytes(4) + b"\\xff\\xff\\xff\\xff" + grown)
"""


@pytest.mark.desktop
def test_a_display_that_grows_without_end_ends_the_viewer_and_not_the_dashboard(served: Served) -> None:
    box = served.create()
    asked = f"/v1/sandboxes/{box}/desktop"
    assert served.http.post(asked, json={"do": "start"}).status_code == 200
    assert served.http.put(f"/v1/sandboxes/{box}/files/content?path=/tmp/huge.py", content=HUGE).status_code == 200
    start = {"command": "python3 /tmp/huge.py > /tmp/said 2>&1 & until grep -q listens /tmp/said; do sleep 0.1; done"}
    assert served.http.post(f"/v1/sandboxes/{box}/exec", json=start).json()["exit_code"] == 0
    with chromium() as browser, dashboard(browser, served) as page:
        page.goto(f"{served.address}/#/s/{box}/screen")
        screen = page.frame_locator("iframe")
        screen.get_by_text("The connection has ended.").wait_for()
        widths = page.frames[1].evaluate("[...document.querySelectorAll('canvas')].map(one => one.width)")
        assert all(width <= 3840 for width in widths)
        page.get_by_role("link", name="Record").first.click()  # the dashboard goes on
    assert served.http.delete(f"/v1/sandboxes/{box}").status_code == 200
