"""A web page that is open inside, such as in the sandbox's own browser, is not the agent: it gets no signature."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from sandbox import Sandbox
from tests.signing.keys import ADDRESS, POLICY, sender, transaction
from tests.signing.signers import RunningSigner
from tests.signing.test_signer import RAW, ask

pytestmark = pytest.mark.walls


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSigner]:
    running = RunningSigner(tmp_path_factory.mktemp("signer") / "h", {**POLICY, "max_per_hour": 100})
    yield running
    running.end()


@pytest.fixture
def box(
    signer: RunningSigner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _home_of_its_own: None
) -> Iterator[Sandbox]:
    monkeypatch.setenv("SANDBOX_HOME", str(signer.home))
    config = {
        "signing": signer.policy,
        "filesystem": {"root": str(tmp_path), "programs": [sys.executable]},
        "browser": {"headless": True},
    }
    with Sandbox(config) as made:
        yield made


def test_a_page_in_the_sandboxes_browser_gets_no_signature_and_a_program_does(box: Sandbox) -> None:
    box.mkdir("/tmp/site")
    box.write_text("/tmp/site/index.html", "<title>a page</title>")
    server = [sys.executable, "-I", "-u", "-m", "http.server", "8123", "--bind", "127.0.0.1", "-d", "/tmp/site"]
    box.spawn(server, keep="site")
    wanted = {"requestId": "of-a-page", "createdAt": 1, **transaction()}
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(box.browser().ws_endpoint)
        page = browser.contexts[0].new_page()
        for _ in range(100):
            try:
                page.goto("http://127.0.0.1:8123/")
                break
            except Exception:  # noqa: BLE001 - Playwright's: nobody listens yet
                page.wait_for_timeout(100)
        assert page.title() == "a page"
        # No preflight is needed for such a request: a browser sends it whatever the other side thinks of it.
        reached = page.evaluate(
            """async asked => {
                const how = {method: 'POST', mode: 'no-cors', body: JSON.stringify(asked)};
                return (await fetch('http://signer.sandbox.internal/sign', how)).type;
            }""",
            wanted,
        )
        assert reached == "opaque"
        browser.close()
    status, told = ask(box, "/sign", wanted)  # had the page's request been signed, this would be a replay
    assert (status, sender(told["signature"])) == (200, ADDRESS)


@pytest.mark.parametrize(
    ("sent", "allowed"),
    [
        ("Origin: http://evil.example", False),
        ("Origin: null", False),
        ("Origin: http://signer.sandbox.internal.evil.example", False),
        ("Origin: http://signer.sandbox.internal", False),  # the signer has no page of its own
        ("Sec-Fetch-Site: cross-site", False),
        ("Sec-Fetch-Site: same-site", False),
        ("Sec-Fetch-Site: none", False),  # an address that somebody opened in a browser
        ("Sec-Fetch-Mode: cors", True),  # what Node's own fetch sends
        ("User-Agent: ethers", True),
    ],
)
def test_what_a_browser_sends_for_a_page_is_refused_by_its_own_rule(box: Sandbox, sent: str, allowed: bool) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "eth_accounts", "params": []})
    head = f"Host: signer.sandbox.internal\r\n{sent}\r\nContent-Length: {len(body)}\r\nConnection: close"
    done = box.exec([sys.executable, "-I", "-c", RAW], input=f"POST / HTTP/1.1\r\n{head}\r\n\r\n{body}", check=True)
    assert (ADDRESS in done.stdout) is allowed
    assert done.stdout.startswith("HTTP/1.1 200" if allowed else "HTTP/1.1 403")
