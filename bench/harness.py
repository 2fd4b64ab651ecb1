"""What every benchmark shares: fair repetitions, processes to measure in, and rows for the one table.

Figures move with the machine's load, so nothing here is an absolute promise: the cases of a subject take turns, the
median counts, and a budget is a ratio between cases of the same run.
"""

from __future__ import annotations

import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parent.parent

#: Measures one repetition and says how long it took, in milliseconds.
Case = Callable[[], float]
#: What a worker runs; the callable it may return gives back what was used, outside the measured time.
Work = Callable[[], Callable[[], object] | None]


class Failed(Exception):
    """A measured thing did not do its job, so its time would mean nothing."""


@dataclass(frozen=True)
class Row:
    """One line of the table. `held` is None where no budget applies."""

    what: str
    figure: str
    ratio: str = ""
    budget: str = ""
    held: bool | None = None

    def cells(self) -> tuple[str, ...]:
        held = {None: "", True: "yes", False: "**NO**"}[self.held]
        return (self.what, self.figure, self.ratio, self.budget, held)


HEADINGS = ("what", "figure", "ratio", "budget", "held")


@dataclass
class Bench:
    """What a subject is given: the repetitions to make and the places to make them in."""

    repetitions: int
    python: Path  # of a plain installation, as a user has it
    npm: Path
    peers_python: Path
    #: Peers that could not be installed, and why.
    unavailable: Mapping[str, str] = field(default_factory=dict)
    log: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)

    def medians(self, cases: Mapping[str, Case]) -> dict[str, float | Failed]:
        """The median of each case."""
        return self._each(cases, statistics.median)

    def bests(self, cases: Mapping[str, Case]) -> dict[str, float | Failed]:
        """The least that each case took: for work of the kernel alone, of which more is what else the machine did."""
        return self._each(cases, min)

    def _each(self, cases: Mapping[str, Case], figure: Callable[[list[float]], float]) -> dict[str, float | Failed]:
        """A figure of the times of each case. They take turns, so that a busy moment falls on all of them alike; and
        every turn in another order, because the kernel is busy for a while with what a case leaves behind (its
        namespaces)."""
        times: dict[str, list[float]] = {name: [] for name in cases}
        failed: dict[str, Failed] = {}
        for turn in range(self.repetitions + 1):
            for name in random.Random(turn).sample(list(cases), len(cases)):
                if name in failed:
                    continue
                try:
                    elapsed = cases[name]()
                except Failed as error:
                    failed[name] = error
                    self.log(f"  {name}: {error}")
                    continue
                if turn:  # the first turn only fills caches
                    times[name].append(elapsed)
        return {name: failed.get(name) or figure(times[name]) for name in cases}


def command(argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Case:
    """A case that runs a whole command, from spawn to reaped, in the least time a parent can."""
    words = [str(word) for word in argv]
    environment = {**os.environ, **(env or {})}
    quiet = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
    ]

    def run() -> float:
        start = time.perf_counter()
        try:
            pid = os.posix_spawnp(words[0], words, environment, file_actions=quiet)
        except OSError as error:
            raise Failed(f"{words[0]}: {error.strerror}") from error
        _, status = os.waitpid(pid, 0)
        elapsed = (time.perf_counter() - start) * 1000
        if code := os.waitstatus_to_exitcode(status):
            raise Failed(f"exit status {code}: {complaint(words, environment)}")
        return elapsed

    return run


def complaint(words: list[str], env: Mapping[str, str]) -> str:
    """The last line a failing command prints: the reason the table gives."""
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1][:120] if lines else "it says nothing"


@contextmanager
def own_project() -> Iterator[Path]:
    """An empty project, and a sandbox home of its own for what is started meanwhile."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as place:
        project = Path(place, "project")
        project.mkdir()
        os.environ["SANDBOX_HOME"] = f"{place}/home"
        try:
            yield project
        finally:
            del os.environ["SANDBOX_HOME"]


class Worker:
    """A process of another interpreter in which named pieces of Python are measured, one repetition at a time."""

    def __init__(self, python: Path, module: str, cwd: Path) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [python, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=cwd
        )

    def ask(self, name: str) -> float:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(f"{name}\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise Failed("its worker has ended") from None
        verdict, _, value = self._process.stdout.readline().strip().partition(" ")
        if verdict != "ok":
            raise Failed(value or "its worker has ended")
        return float(value)

    def case(self, name: str) -> Case:
        return lambda: self.ask(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


def serve(timed: Mapping[str, Work], figures: Mapping[str, Callable[[], float]]) -> None:
    """A worker's side: the milliseconds of what is asked for by name, or a figure that is no time."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the measured code prints is no answer
    for line in sys.stdin:
        name = line.strip()
        try:
            value = figures[name]() if name in figures else _milliseconds(timed[name])
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is the reason in its row
            answers.write(f"failed {type(error).__name__}: {' '.join(str(error).split())[:120]}\n")
        else:
            answers.write(f"ok {value}\n")


def _milliseconds(work: Work) -> float:
    start = time.perf_counter()
    give_back = work()
    elapsed = (time.perf_counter() - start) * 1000
    if give_back:
        give_back()
    return elapsed


def machine(python: Path) -> str:
    """The machine in one line: a table without it says nothing."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    bwrap = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    user = "root" if os.geteuid() == 0 else "an ordinary user"
    return (
        f"{os.cpu_count()} cores ({model}), Linux {platform.release()}, {version}, {bwrap}, as {user}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()


def table(rows: Iterable[Row]) -> str:
    """Markdown whose columns also line up in a terminal."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
