"""A container engine: a further command in a sandbox beside the engine's own `exec`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Bench, Row, Worker, command
from bench.walls import budget, timed

SHOWN = (("/usr", "/usr"), ("/usr/lib", "/lib"), ("/usr/lib64", "/lib64"))


def rows(bench: Bench) -> Iterator[Row]:
    """A Docker of its own is started, which only root can."""
    what = "a further command in a container, over `docker exec`"
    if os.geteuid() != 0:
        yield Row(what, "not measured: root starts Docker")
        return
    from tests.engines.container_engines import Docker

    daemon = Docker()
    before = dict(os.environ)
    os.environ["DOCKER_HOST"] = daemon.host
    try:
        with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as place:
            os.environ["SANDBOX_HOME"] = f"{place}/home"
            (Path(place) / "project").mkdir()
            with Worker(bench.python, "bench.workers.container", Path(place, "project")) as worker:
                yield from commands(bench, worker, what)
    finally:
        os.environ.clear()
        os.environ.update(before)
        daemon.close()


def commands(bench: Bench, worker: Worker, what: str) -> Iterator[Row]:
    bench.log("containers: commands")
    exec_in_sandbox = worker.case("exec")
    exec_in_sandbox()  # from here on the empty image is there
    binds = [word for source, target in SHOWN for word in ("--mount", f"type=bind,source={source},target={target}")]
    words = ["docker", "run", "--detach", "--rm", "--network", "none", *binds, "--entrypoint", "/usr/bin/sleep"]
    words += ["localhost/sandbox-empty:1", "1000"]
    container = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    try:
        cases = {"ours": exec_in_sandbox, "docker": command(["docker", "exec", container, "/usr/bin/true"])}
        median = bench.medians(cases)
    finally:
        subprocess.run(["docker", "rm", "--force", container], capture_output=True, check=False)
    ours, theirs = median["ours"], median["docker"]
    yield timed("`docker exec` of `true`", theirs, theirs, "`docker exec`")
    yield timed("**a further command in a sandbox with Docker**", ours, theirs, "`docker exec`")
    yield budget(what, ours, theirs, 0.1, "1/10")
