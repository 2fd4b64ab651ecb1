"""Our Python API, measured inside one process of a plain installation."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.harness import serve
from sandbox import Sandbox

ALIVE = 100
MANY = 1000
GROUP = 100  # sandboxes whose median stands for the first and for the last …
ROUNDS = 3  # … of so many rounds together
SETTLE = 3.0  # seconds in which the kernel takes down the namespaces of sandboxes that were closed
MANY_PARTS = ("many-first", "many-first-cpu", "many-last", "many-last-cpu", "many-close")
MIB = 1024 * 1024
PARTS = ("memory-owner", "memory-others", "memory-machine")


def run_true(sandbox: Sandbox) -> None:
    result = sandbox.exec(["true"])
    if result.exit_code:
        raise RuntimeError(f"true exited with {result.exit_code}: {result.stderr!r}")


def first_command() -> Callable[[], None]:
    sandbox = Sandbox()
    run_true(sandbox)
    return sandbox.close


def whole_life() -> None:
    with Sandbox() as sandbox:
        run_true(sandbox)


def bare_subprocess() -> None:
    subprocess.run(["true"], capture_output=True, check=True)


def measure_memory() -> dict[str, float]:
    """Memory of each idle sandbox beyond the first, in MB: what the owner grew by, its descendants, and what the
    whole machine has less of, which counts the kernel's share (namespaces, mounts) and everybody else's noise."""
    sandboxes = [Sandbox()]
    try:
        run_true(sandboxes[0])
        owner, others = pss(os.getpid()), sum(map(pss, descendants(os.getpid())))
        free = available()
        for _ in range(ALIVE - 1):
            sandboxes.append(Sandbox())
            run_true(sandboxes[-1])
        grown = pss(os.getpid()) - owner
        added = sum(map(pss, descendants(os.getpid()))) - others
        taken = free - available()
        for sandbox in sandboxes:  # alive means that it still runs commands
            run_true(sandbox)
    finally:
        for sandbox in sandboxes:
            sandbox.close()
    return {name: value / (ALIVE - 1) / MIB for name, value in zip(PARTS, (grown, added, taken), strict=True)}


def measure_many() -> dict[str, float]:
    """What the first and the last of MANY sandboxes alive at once cost, in milliseconds of time and of the owner's
    processor time, and the seconds to close all.

    A busy moment of the machine is as long as a whole group takes, and one round's ratio was anything from 0.8 to 1.4.
    So there are some rounds, each on a settled machine, and a figure is the median of all their groups together.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for _ in range(3):  # they pay for imports and caches
        whole_life()
    first: list[tuple[float, float]] = []
    last: list[tuple[float, float]] = []
    closings = []
    for _ in range(ROUNDS):
        time.sleep(SETTLE)
        costs, closing = one_round()
        first += costs[:GROUP]
        last += costs[-GROUP:]
        closings.append(closing)
    figures = [statistics.median(column) for column in (*zip(*first, strict=True), *zip(*last, strict=True), closings)]
    return dict(zip(MANY_PARTS, figures, strict=True))


def one_round() -> tuple[list[tuple[float, float]], float]:
    """Time and the owner's processor time of each of MANY sandboxes, in milliseconds; the seconds to close all."""
    sandboxes: list[Sandbox] = []
    costs: list[tuple[float, float]] = []
    try:
        for _ in range(MANY):
            began, used = time.perf_counter(), time.process_time()
            sandboxes.append(Sandbox())
            run_true(sandboxes[-1])
            costs.append(((time.perf_counter() - began) * 1000, (time.process_time() - used) * 1000))
    finally:
        began = time.perf_counter()
        for sandbox in sandboxes:
            sandbox.close()
        closing = time.perf_counter() - began
    return costs, closing


def available() -> int:
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(meminfo["MemAvailable"].split()[0]) * 1024


def pss(pid: int) -> int:
    """Proportional set size in bytes: pages that n processes share count 1/n in each."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no Pss for process {pid}")


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found


def main() -> None:
    living = Sandbox()
    memory: dict[str, float] = {}

    def remembered(part: str) -> float:
        if part not in memory:
            memory.update(measure_many() if part in MANY_PARTS else measure_memory())
        return memory[part]

    serve(
        {
            "first": first_command,
            "life": whole_life,
            "further": lambda: run_true(living),
            "subprocess": bare_subprocess,
        },
        {part: partial(remembered, part) for part in (*PARTS, *MANY_PARTS)},
    )
    living.close()


if __name__ == "__main__":
    main()
