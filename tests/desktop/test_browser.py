"""A browser inside the walls: real Chromium, driven by Playwright and Selenium from outside."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from sandbox import Sandbox
from sandbox.desktop.loopback import peer_user
from sandbox.errors import Denied
from tests.desktop.desks import until

pytestmark = pytest.mark.walls


@pytest.fixture
def driven(sandbox: Sandbox) -> Iterator[Browser]:
    """Playwright, connected to the browser inside."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(sandbox.browser().ws_endpoint)
        yield browser
        browser.close()


@pytest.fixture
def page(driven: Browser) -> Page:
    return driven.contexts[0].new_page()


def test_a_page_sees_the_files_of_the_inside_and_can_reach_no_debugging_port(
    sandbox: Sandbox, page: Page, tmp_path: Path
) -> None:
    (tmp_path / "outside.html").write_text("<title>the host's</title>")
    sandbox.write_text("/tmp/inside.html", "<title>inside</title>")
    page.goto("file:///tmp/inside.html")
    assert page.title() == "inside"
    response = None
    try:
        response = page.goto(f"file://{tmp_path}/outside.html")
    except Exception as problem:  # noqa: BLE001 - Playwright's
        assert "ERR_FILE_NOT_FOUND" in str(problem)
    assert response is None
    page = page.context.new_page()  # to the other one the page with the error may be still on its way
    page.goto("file:///tmp/inside.html")
    # No process inside listens for the protocol, so there is nothing that a page could be tricked into reaching.
    listening = sandbox.exec("cat /proc/net/tcp /proc/net/tcp6").stdout
    loopback = [row for row in listening.splitlines() if " 0100007F:" in row and row.split()[3] == "0A"]
    assert loopback == []
    # The host's end, which is where the protocol is, is not on any network of the sandbox's.
    address = sandbox.browser().debugger_address
    told = page.evaluate(
        f"""async () => {{
            const tried = [];
            for (const url of ['http://{address}/json/list', 'http://{address}/json/new?about:blank'])
                tried.push(await fetch(url, {{mode: 'no-cors', method: 'GET'}}).then(() => 'reached', () => 'refused'));
            tried.push(await new Promise(done => {{
                const socket = new WebSocket('ws://{address}/devtools/browser/x');
                socket.onopen = () => done('reached'); socket.onerror = () => done('refused');
            }}));
            return tried;
        }}"""
    )
    assert told == ["refused"] * 3


def test_a_host_that_is_not_allowed_is_refused_by_the_gate_and_recorded(sandbox: Sandbox, page: Page) -> None:
    heard: list[object] = []
    sandbox.on_event(lambda event: heard.append(event["network"]) if event["type"] == "network" else None)
    response = page.goto("https://denied.example/")  # the gate's own answer, under a certificate that it trusts
    assert response is not None and response.status == 403 and "denied.example" in page.content()
    until(lambda: any("denied.example" in str(one) for one in heard))


@pytest.mark.desktop
def test_a_download_lands_inside_and_an_upload_comes_from_there(sandbox: Sandbox, page: Page) -> None:
    sandbox.write_text("/tmp/up.txt", "from inside")
    sandbox.write_text("/tmp/form.html", "<input type=file><a download=down.txt href='data:text/plain,hello'>get</a>")
    page.goto("file:///tmp/form.html")
    session = page.context.new_cdp_session(page)
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    node = session.send("DOM.querySelector", {"nodeId": root, "selector": "input"})["nodeId"]
    session.send("DOM.setFileInputFiles", {"nodeId": node, "files": ["/tmp/up.txt"]})
    assert page.evaluate("document.querySelector('input').files[0].text()") == "from inside"
    session.send("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": "/tmp/downloads"})
    page.evaluate("document.querySelector('a').click()")
    until(lambda: sandbox.exists("/tmp/downloads/down.txt"))
    assert sandbox.read_text("/tmp/downloads/down.txt") == "hello"
    assert not os.path.exists("/tmp/downloads/down.txt")


@pytest.mark.desktop
def test_selenium_drives_the_same_browser(sandbox: Sandbox) -> None:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    sandbox.write_text("/tmp/inside.html", "<title>inside</title>")
    options = webdriver.ChromeOptions()
    options.debugger_address = sandbox.browser().debugger_address
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        driver.get("file:///tmp/inside.html")
        assert driver.title == "inside"
    finally:
        driver.quit()


@pytest.mark.desktop
def test_nobody_else_drives_it_neither_a_page_nor_a_rebound_name_nor_another_user(sandbox: Sandbox) -> None:
    endpoints = sandbox.browser()
    version = f"{endpoints.cdp_endpoint}/json/version"
    assert httpx.get(version, trust_env=False).json()["Browser"].startswith("Chrome/")
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
        assert httpx.get(version, headers=headers, trust_env=False).status_code == 403
    port = int(endpoints.debugger_address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as line:
        assert peer_user(line.getsockname(), port) == os.geteuid()
    assert peer_user(("127.0.0.1", 1), port) is None


@pytest.mark.root
@pytest.mark.desktop
def test_another_user_of_this_machine_is_refused_without_the_secret(sandbox: Sandbox) -> None:
    import subprocess

    address = sandbox.browser().debugger_address
    told = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}",
         "--noproxy", "*", f"http://{address}/json/list"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.stdout == "403"


@pytest.mark.desktop
def test_a_crash_is_reported_and_the_next_use_starts_it_again(sandbox: Sandbox) -> None:
    states: list[object] = []
    sandbox.on_event(lambda event: states.append(event["browser"]["state"]) if event["type"] == "browser" else None)  # type: ignore[index]
    first = sandbox.browser()
    sandbox.exec("for p in /proc/[0-9]*; do case $(readlink $p/exe) in */chromium) kill -9 ${p#/proc/};; esac; done")
    until(lambda: "ended" in states)
    assert sandbox.browser() == first  # at the same address
    assert httpx.get(f"{first.cdp_endpoint}/json/version", trust_env=False).status_code == 200
    assert states == ["started", "ended", "restarted"]


@pytest.mark.desktop
def test_cookies_of_one_sandbox_are_not_those_of_another(
    sandbox: Sandbox, driven: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    driven.contexts[0].add_cookies([{"name": "who", "value": "first", "url": "http://site.example/"}])
    settings = {"filesystem": {"root": str(tmp_path_factory.mktemp("other"))}, "browser": {"headless": True}}
    with Sandbox(settings) as other:
        cookies = other._browser._running().call("Storage.getCookies")["cookies"]
        assert cookies == []


def test_a_configuration_without_a_browser_has_none(sandbox: Sandbox) -> None:
    sandbox.config.browser.enabled = False
    with pytest.raises(Denied, match="browser.enabled"):
        sandbox.browser()


def test_a_caller_who_has_closed_the_connection_is_not_identified() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        caller = socket.create_connection(("127.0.0.1", port))
        peer = caller.getsockname()
        accepted, _ = listener.accept()
        with accepted:
            assert peer_user(peer, port) == os.geteuid()
            caller.close()
            assert accepted.recv(1) == b""
            assert peer_user(peer, port) is None
