"""Control: what JSON-RPC costs beside a call in the same process, large files over it, and the registry."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from bench.harness import Bench, Failed, Row, Worker, command, own_project
from bench.walls import budget, timed

ENTRIES = 200
REGISTER = f"""
from sandbox.config.home import home
from sandbox.config.model import Config
from sandbox.registry.registration import Registration
for number in range({ENTRIES}):
    Registration(home(), f"vm-{{number:07x}}f", Config().plain(), ["python", "script.py"]).end()
"""


def rows(bench: Bench) -> Iterator[Row]:
    """Every budget that concerns control from outside."""
    with own_project() as project:
        with Worker(bench.python, "bench.workers.rpc", project) as worker:
            yield from commands(bench, worker)
            yield from files(bench, worker)
        yield from registry(bench)


def commands(bench: Bench, worker: Worker) -> Iterator[Row]:
    bench.log("rpc: commands")
    median = bench.medians({name: worker.case(name) for name in ("in process", "rpc", "register")})
    ours, bare = median["rpc"], median["in process"]
    yield timed("`Sandbox.exec` of `true`, in process", bare, bare, "in process")
    yield timed("**the same over JSON-RPC** (Python client)", ours, bare, "in process")
    over = "… over the call in process"
    if isinstance(ours, Failed) or isinstance(bare, Failed):
        yield Row(over, "not measured", budget="≤ 1 ms", held=False)
    else:
        yield Row(over, f"{ours - bare:.2f} ms", budget="≤ 1 ms", held=ours - bare <= 1)
    what = "**an entry in the registry**, made"
    yield timed(what, median["register"], bare, "in process")
    bench.log("rpc: 1,000 commands at a time")
    crowd = bench_once(worker, "crowd")
    what = "1,000 commands at a time in one sandbox, all complete"
    if isinstance(crowd, Failed):
        yield Row(what, f"not measured: {crowd}", budget="all", held=False)
    else:
        yield Row(what, f"{crowd:.0f} ms", budget="all", held=True)


def files(bench: Bench, worker: Worker) -> Iterator[Row]:
    bench.log("rpc: 100 MB in and out")
    median = bench.medians({name: worker.case(name) for name in ("write", "read")})
    for name, label in (("write", "`write_file`"), ("read", "`read_file`")):
        took = median[name]
        what = f"**{label} of 100 MB** over JSON-RPC, base64 included"
        if isinstance(took, Failed):
            yield Row(what, f"not measured: {took}", budget="≥ 300 MB/s", held=False)
        else:
            pace = 100_000 / took
            yield Row(what, f"{pace:.0f} MB/s", budget="≥ 300 MB/s", held=pace >= 300)
    grown = bench_once(worker, "server memory")
    what = "… the server's memory at its peak, beyond its start"
    if isinstance(grown, Failed):
        yield Row(what, f"not measured: {grown}", budget="≤ 100 MB", held=False)
    else:
        yield Row(what, f"{grown:.0f} MB", budget="≤ 100 MB", held=grown <= 100)


def registry(bench: Bench) -> Iterator[Row]:
    bench.log(f"rpc: sandbox list with {ENTRIES} entries")
    subprocess.run([bench.python, "-c", REGISTER], check=True)
    sandbox = bench.python.parent / "sandbox"
    median = bench.medians({"version": command([sandbox, "--version"]), "list": command([sandbox, "list"])})
    version, listed = median["version"], median["list"]
    yield timed("`sandbox --version`", version, version, "--version")
    yield timed(f"**`sandbox list`**, {ENTRIES} entries", listed, version, "--version")
    yield budget("… against `--version`", listed, version, 1.5, "1.5 × `sandbox --version`")


def bench_once(worker: Worker, name: str) -> float | Failed:
    try:
        return worker.ask(name)
    except Failed as error:
        return error
