"""The desktop inside: until it is ready, a picture of it, a click until it shows, and the browser's protocol."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

from bench.harness import Bench, Row
from sandbox import Sandbox

CLICKED = (
    r"stty raw -echo; printf '\033[?1000h'; while dd bs=6 count=1 of=/dev/null 2>/dev/null; do "
    r"printf '\033]11;#00ff00\007'; dd bs=6 count=1 of=/dev/null 2>/dev/null; printf '\033]11;#ff0000\007'; done"
)


def rows(bench: Bench) -> Iterator[Row]:
    """Every budget of the desktop, at 1280×800."""
    bench.log("desktop")
    times = max(3, bench.repetitions // 5)
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as home, _home(home):
        ready, browser = [], []
        for _ in range(times):
            with Sandbox() as sandbox:
                ready.append(_time(sandbox.desktop.start))
                browser.append(_time(sandbox._browser.start))
        yield _row("the desktop is ready", statistics.median(ready), 1500)
        with Sandbox() as sandbox:
            sandbox.desktop.start()
            shots = [_time(sandbox.desktop.screenshot) for _ in range(5 * times)]
            yield _row("a screenshot of 1280×800", statistics.median(shots), 60)
            yield _row("from a click to the changed pixel", _clicks(sandbox, 5 * times), 100)
        yield _row("Chromium's protocol answers", statistics.median(browser), 4000)


class _home:
    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        os.environ["SANDBOX_HOME"] = self._place

    def __exit__(self, *_: object) -> None:
        del os.environ["SANDBOX_HOME"]


def _row(name: str, taken: float, budget: float) -> Row:
    return Row(name, f"{taken:.0f} ms", budget=f"≤ {budget:g} ms", held=taken <= budget)


def _time(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def _clicks(sandbox: Sandbox, times: int) -> float:
    """A terminal that changes its colour at each press and each release: one pixel is looked at until it differs."""
    desktop = sandbox.desktop
    sandbox.spawn(["xterm", "-bg", "red", "-geometry", "100x30+0+0", "-e", CLICKED], keep="painter")
    before = desktop.screenshot((200, 200, 1, 1))
    end = time.monotonic() + 20
    while desktop.screenshot((200, 200, 1, 1)) == before and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(1)
    desktop.move(200, 200)
    taken = []
    for turn in range(2 * times):
        before = desktop.screenshot((200, 200, 1, 1))
        start = time.perf_counter()
        desktop.mouse(turn % 2 == 0)
        while desktop.screenshot((200, 200, 1, 1)) == before and time.perf_counter() - start < 5:
            pass
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)
