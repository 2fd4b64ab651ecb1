"""The pictures in docs/, taken from a real server. `make pictures` renews them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.server.browser import chromium, dashboard
from tests.server.serving import Served
from tests.signing.keys import ETHER, POLICY, transaction
from tests.signing.signers import RunningSigner

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SIZE = {"width": 1180, "height": 620}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return Path(os.environ.get("SANDBOX_SCREENSHOTS") or tmp_path).absolute()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    """A server with an agent that changed files, was refused a host, and waits for an answer about another."""
    home = tmp_path_factory.mktemp("h")
    project = tmp_path_factory.mktemp("p") / "shop"
    project.mkdir()
    (project / "cart.py").write_text("def total(items):\n    return sum(item.price for item in items)\n")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    served = Served(home)
    box = served.create("fix-cart", filesystem={"root": str(project), "overlay": True}, network={"ask": True})
    served.create("research", limits={"memory": "512m"})
    run = f"/v1/sandboxes/{box}/exec"
    edit = "sed -i 's/item.price for/item.price * item.count for/' cart.py; echo '# Cart' > NOTES.md; cat .env"
    served.http.post(run, json={"command": f"curl -s https://tracker.example/; {edit}"})
    yield served, box
    served.end()


@pytest.mark.parametrize(("scheme", "host"), [("light", "pypi.example"), ("dark", "npm.example")])
def test_a_picture_of_each_page(
    busy: tuple[Served, str], browser: Browser, pictures: Path, tmp_path: Path, scheme: str, host: str
) -> None:
    served, box = busy
    others = pictures if scheme == "light" else tmp_path  # the documentation has one page in dark
    with dashboard(browser, served, viewport=SIZE, color_scheme=scheme) as page:
        page.get_by_text("Live", exact=True).wait_for()
        waiting = served.start(f"/v1/sandboxes/{box}/exec", {"command": f"curl -s https://{host}/simple/"})
        page.locator(".ask").wait_for()
        row = page.get_by_role("row").filter(has_text="fix-cart")
        row.get_by_text(f"curl -s https://{host}").wait_for()
        row.get_by_text(re.compile(r"^\d+ %$")).wait_for()
        page.screenshot(path=str(pictures / f"dashboard-{scheme}.png"))
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        page.screenshot(path=str((pictures if scheme == "dark" else tmp_path) / f"phone-{scheme}.png"))
        page.set_viewport_size(SIZE)  # type: ignore[arg-type]
        page.locator(".ask").get_by_role("button", name="Deny").click()
        waiting.result(60)
        page.get_by_role("link", name="Record").click()
        page.locator(".entry.refused .why summary").first.click()
        page.screenshot(path=str(others / f"record-{scheme}.png"))
        page.goto(f"{served.address}/#/s/{box}/changes")
        page.locator("details.change").filter(has_text="cart.py").locator("summary").click()
        page.get_by_text("item.count").wait_for()
        page.screenshot(path=str(others / f"changes-{scheme}.png"))
        page.goto(f"{served.address}/#/s/{box}/policy")
        page.get_by_text("blocked_patterns").wait_for()
        page.screenshot(path=str(others / f"policy-{scheme}.png"))
        page.goto(f"{served.address}/#/s/{box}/terminal")
        frame = page.frame_locator("iframe.terminal")
        frame.locator(".xterm-screen").click()
        page.keyboard.type("ls -l; exit 0\n")
        frame.get_by_text("It ended with status 0.").wait_for()
        page.screenshot(path=str(others / f"terminal-{scheme}.png"))
    assert (pictures / f"dashboard-{scheme}.png").stat().st_size > 5000
    assert all((others / f"{name}-{scheme}.png").stat().st_size > 5000 for name in ("record", "terminal"))


def test_a_picture_of_a_signature_that_waits(browser: Browser, pictures: Path, tmp_path: Path) -> None:
    signer = RunningSigner(tmp_path / "s", POLICY)
    served = Served(signer.home)
    try:
        with served.limited("sign", "read") as agent:
            dear = {"requestId": "pay-invoice-17", "createdAt": 1700000000000, **transaction(value=str(ETHER // 20))}
            assert agent.post("/api/sandbox/sign", json=dear).status_code == 202
        with dashboard(browser, served, viewport={"width": 1180, "height": 420}) as page:
            page.locator("article.signature").get_by_text("0.05 ETH").first.wait_for()
            page.screenshot(path=str(pictures / "signing-light.png"))
    finally:
        served.end()
        signer.end()
    assert (pictures / "signing-light.png").stat().st_size > 5000
