"""Virtual machines: starts, commands, forks, idle clones, files and the gate, each with its budget.

The budgets are for emulated machines (no KVM) on two quiet processors.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Bench, Failed, Row, Worker

#: What, the worker's figure, its unit, the budget, whether more is better, how often it is measured at the most.
FIGURES = (
    ("`Sandbox({'engine': 'qemu'})` and a first command", "start", "ms", 200.0, False, 31),
    ("a further command in a machine", "further", "ms", 8.0, False, 5),
    ("`python3 -c 'print(1)'` in a machine, the second time", "python", "ms", 300.0, False, 5),
    ("a fork of a machine with 256 MB touched, until it answers", "fork", "ms", 500.0, False, 3),
    ("each further clone of it", "forks", "ms", 200.0, False, 1),
    ("memory of an idle machine beyond the first of 20 (PSS)", "memory", "MB", 45.0, False, 1),
    ("its processor time", "processor", "% of a core", 2.0, False, 1),
    ("reading a project's file in a machine", "read", "MB/s", 150.0, True, 3),
    ("writing one", "write", "MB/s", 150.0, True, 3),
    ("`git status` of 10,000 files in a machine, the first time", "git", "ms", 6000.0, False, 1),
    ("bytes through the gate from a machine", "gate", "MB/s", 50.0, True, 3),
)


def rows(bench: Bench) -> Iterator[Row]:
    from sandbox.engines.machine.kernel import find_kernel
    from sandbox.engines.qemu.command import find_qemu
    from sandbox.errors import EngineUnavailable

    try:
        find_qemu(), find_kernel()
    except EngineUnavailable as problem:
        yield Row("virtual machines", f"not measured: {problem}")
        return
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as place:
        before = dict(os.environ)
        os.environ.update(SANDBOX_HOME=f"{place}/home", SANDBOX_CACHE_DIR=f"{place}/cache")
        (Path(place) / "project").mkdir()
        try:
            with Worker(bench.python, "bench.workers.vm", Path(place, "project")) as worker:
                yield from measured(bench, worker)
        finally:
            os.environ.clear()
            os.environ.update(before)


def measured(bench: Bench, worker: Worker) -> Iterator[Row]:
    found: dict[str, float | Failed] = {}
    found["cold"] = figure(worker, "cold", 1)
    for what, name, unit, budget, more, most in FIGURES:
        bench.log(f"vm: {name}")
        value = found[name] = figure(worker, name, min(bench.repetitions, most))
        words = f"{'≥' if more else '≤'} {budget:g} {unit}"
        if isinstance(value, Failed):
            yield Row(what, f"not measured: {value}", budget=words, held=False)
        else:
            yield Row(what, f"{value:.1f} {unit}", budget=words, held=value >= budget if more else value <= budget)
    found["git again"], found["git outside"] = (figure(worker, name, 1) for name in ("git again", "git outside"))
    yield ratio("a start over a boot without a template", found["start"], found["cold"], 0.1, "1/10 of the boot")
    yield ratio("`git status` again, over outside", found["git again"], found["git outside"], 20, "20 ×")


def figure(worker: Worker, name: str, times: int) -> float | Failed:
    try:
        return statistics.median(worker.ask(name) for _ in range(max(1, times)))
    except Failed as problem:
        return problem


def ratio(what: str, value: float | Failed, base: float | Failed, most: float, words: str) -> Row:
    if isinstance(value, Failed) or isinstance(base, Failed):
        return Row(what, "not measured", budget=f"≤ {words}", held=False)
    return Row(what, "", f"{value / base:.2f} ×", f"≤ {words}", value <= most * base)
