"""Package caches: what they cost a run that does not use them, and what a second `npm install` gains by them.

The registry is whatever npm of this machine is set up for, asked for at run time.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from bench.harness import Bench, Case, Failed, Row, command

PACKAGES = ("express", "typescript")
TURNS = 3  # of an installation, which takes seconds
STARTS = 100  # at least: one millisecond of thirty is looked for


def rows(bench: Bench) -> Iterator[Row]:
    """A start with and without caches, by processor time; then installing what is cached already."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as place:
        homes = {name: Path(place, name) for name in ("with", "without")}
        for name, home in homes.items():
            home.mkdir()
            (home / "config.yaml").write_text("{}\n" if name == "with" else "caches: []\n")
        project = Path(place, "project")
        project.mkdir()
        (project / "package.json").write_text('{"name": "bench", "version": "1.0.0"}\n')
        yield from start(bench, project, homes)
        yield from install(bench, project, homes)


def start(bench: Bench, project: Path, homes: dict[str, Path]) -> Iterator[Row]:
    """The processor time of `sandbox run -- true`, everything that it starts included."""
    bench.log("caches: start")
    used: dict[str, list[float]] = {name: [] for name in homes}
    argv = [str(bench.python), "-m", "sandbox", "run", "--root", str(project), "--", "true"]
    for turn in range(max(STARTS, 3 * bench.repetitions) + 1):
        # In turn, because the kernel is busy for a while with what the one before leaves behind.
        for name in list(homes)[:: 1 if turn % 2 else -1]:
            pid = os.posix_spawn(argv[0], argv, {**os.environ, "SANDBOX_HOME": str(homes[name])})
            usage = os.wait4(pid, 0)[2]
            if turn:
                used[name].append((usage.ru_utime + usage.ru_stime) * 1000)
    more = min(used["with"]) - min(used["without"])  # more than that is what else the machine did: it is milliseconds
    yield Row(
        "start, processor time for the person's package caches", f"{more:.2f} ms", budget="≤ 1 ms", held=more <= 1
    )


def install(bench: Bench, project: Path, homes: dict[str, Path]) -> Iterator[Row]:
    """`npm install`, of packages that the person's cache has."""
    bench.log("caches: npm install")
    said = subprocess.run(["npm", "config", "get", "registry"], capture_output=True, text=True, check=False).stdout
    host = urlsplit(said.strip()).hostname
    if host is None:
        yield Row("npm install, a second time", "npm has no registry")
        return
    words = ["npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", *PACKAGES]
    variables = [word for name in ("npm_config_registry",) for word in ("--env", f"{name}={said.strip()}")]
    allowed = [word for one in {host, *addresses(host)} for word in ("--allow-host", one)]
    inside = [str(bench.python), "-m", "sandbox", "run", "--root", str(project), *allowed, *variables, "--"]
    cases: dict[str, Case] = {"outside": fresh(project, command(["env", "-C", str(project), *words]))}
    for name, home in homes.items():
        cases[name] = fresh(project, command([*inside, *words], {"SANDBOX_HOME": str(home)}))
    medians = Bench(TURNS, bench.python, bench.npm, bench.peers_python, log=bench.log).medians(cases)
    outside = medians["outside"]
    for name, what in (("outside", "outside"), ("without", "inside, `caches: []`"), ("with", "inside")):
        figure = medians[name]
        if isinstance(figure, Failed) or isinstance(outside, Failed):
            yield Row(f"npm install, a second time, {what}", f"failed: {figure}")
        else:
            yield Row(f"npm install, a second time, {what}", f"{figure / 1000:.1f} s", f"{figure / outside:.2f} ×")


def addresses(host: str) -> set[str]:
    """What it resolves to: an address of a private network must be allowed by itself."""
    try:
        return {str(one[4][0]) for one in socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM)}
    except OSError:
        return set()


def fresh(project: Path, case: Case) -> Case:
    """The same, in a project where nothing is installed."""

    def run() -> float:
        shutil.rmtree(project / "node_modules", ignore_errors=True)
        (project / "package-lock.json").unlink(missing_ok=True)
        return case()

    return run
