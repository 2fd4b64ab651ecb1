"""A real Chromium (Debian's) on the dashboard."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.server.serving import Served

# No request of its own: what leaves the browser is what the page asks for.
FLAGS = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--no-pings",
    "--disable-sync", "--disable-default-apps", "--disable-component-update",
]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else FLAGS
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def dashboard(browser: Browser, served: Served, *, token: str | None = None, **context: object) -> Iterator[Page]:
    """The page, signed in. At its end: nothing was asked of another host, and no script failed."""
    options: dict[str, object] = {"locale": "en-US", **context}
    own = browser.new_context(**options)  # type: ignore[arg-type]
    own.set_default_timeout(90_000)  # milliseconds: a browser on a busy machine
    page = own.new_page()
    problems: list[str] = []
    elsewhere: list[str] = []
    page.on("pageerror", lambda problem: problems.append(str(problem)))
    page.on("console", lambda said: problems.append(said.text) if "Content Security Policy" in said.text else None)
    page.on("request", lambda asked: elsewhere.append(asked.url) if not asked.url.startswith(served.address) else None)
    try:
        page.goto(f"{served.address}/#token={token or served.token}")
        yield page
        assert not problems, problems
        assert not elsewhere, elsewhere
    finally:
        own.close()
