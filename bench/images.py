"""An image at `/`: what a start takes longer than with the host's own system."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Bench, Failed, Row, Worker
from bench.install import PLACE
from bench.walls import timed

MOST = 3.0  # milliseconds


def rows(bench: Bench) -> Iterator[Row]:
    """`minimal` is built once and kept beside what else is installed."""
    what = "**`Sandbox({'image': 'minimal'})` + first command**, beyond the host's system"
    before = os.environ.get("SANDBOX_CACHE_DIR")
    os.environ["SANDBOX_CACHE_DIR"] = str(PLACE / f"images-{os.geteuid()}")
    try:
        if reason := _brought(bench):
            yield Row(what, f"not measured: {reason}", budget=f"≤ {MOST:g} ms", held=False)
            return
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as project,
            Worker(bench.python, "bench.workers.images", Path(project)) as worker,
        ):
            bench.log("images: start")
            median = bench.medians({name: worker.case(name) for name in ("host", "image", "host-cpu", "image-cpu")})
        yield timed("`Sandbox()` + first command, beside it", median["host"], median["host"], "the host's system")
        yield timed("the same with `image: minimal`", median["image"], median["host"], "the host's system")
        yield beyond(what, median["image"], median["host"])
        yield beyond("… by processor time, owner and children", median["image-cpu"], median["host-cpu"])
    finally:
        os.environ.pop("SANDBOX_CACHE_DIR")
        if before is not None:
            os.environ["SANDBOX_CACHE_DIR"] = before


def _brought(bench: Bench) -> str:
    """Why `minimal` is not there; nothing when it is."""
    sandbox = bench.python.parent / "sandbox"
    if subprocess.run([sandbox, "images", "inspect", "minimal"], capture_output=True, check=False).returncode == 0:
        return ""
    bench.log("images: building `minimal`, which takes minutes")
    done = subprocess.run([sandbox, "images", "build", "minimal"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()[-200:]


def beyond(what: str, value: float | Failed, base: float | Failed) -> Row:
    if isinstance(value, Failed) or isinstance(base, Failed):
        return Row(what, "not measured", budget=f"≤ {MOST:g} ms", held=False)
    return Row(what, f"{value - base:+.2f} ms", budget=f"≤ {MOST:g} ms", held=value - base <= MOST)
