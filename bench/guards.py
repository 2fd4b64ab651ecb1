"""The guards: what three blocked patterns cost on a large tree, and how fast the record is written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Bench, Case, Row, command

FILES = 100_000
PER_DIRECTORY = 100
ENTRIES = 20_000

AUDIT = """
import sys, tempfile, time
from sandbox.audit.record import Record
with tempfile.TemporaryDirectory() as place:
    record = Record(place, sandbox="vm-bench")
    start = time.perf_counter()
    for number in range(int(sys.argv[1])):
        record.write("policy_decision", "read ./.env", severity="warn", operation="read", target="./.env",
                     result="blocked", policy="sensitive-file-pattern", reason="Matches blocked pattern: .env")
    print(time.perf_counter() - start)
"""
THREE = "filesystem: {blocked_patterns: ['**/.env*', '**/*.pem', '**/credentials*']}\n"


def rows(bench: Bench) -> Iterator[Row]:
    """The issue's two costs."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as place:
        yield from blocked_patterns(bench, Path(place))
    yield from record(bench)


def blocked_patterns(bench: Bench, place: Path) -> Iterator[Row]:
    """The same command in an empty project and in one of 100,000 files."""
    bench.log(f"guards: making {FILES:,} files")
    large, empty, home = place / "large", place / "empty", place / "home"
    empty.mkdir()
    home.mkdir()
    (home / "config.yaml").write_text(THREE)
    for number in range(FILES // PER_DIRECTORY):
        directory = large / f"package{number // 100}" / f"module{number}"
        directory.mkdir(parents=True)
        for name in range(PER_DIRECTORY):
            (directory / f"source_{name}.py").touch()
    (large / ".env").write_text("SECRET=1")
    bench.log("guards: start in an empty and in the large project")
    sandbox: list[str | Path] = [bench.python, "-m", "sandbox", "run"]
    env = {"SANDBOX_HOME": str(home)}
    cases: dict[str, Case] = {
        name: command([*sandbox, "--root", str(root), "--", "true"], env)
        for name, root in (("empty", empty), ("large", large))
    }
    medians = bench.medians(cases)
    small, big = medians["empty"], medians["large"]
    if isinstance(small, Exception) or isinstance(big, Exception):
        yield Row("start with three blocked patterns", f"failed: {small} {big}", held=False)
        return
    yield Row("start, empty project", f"{small:.0f} ms")
    yield Row(f"**start, three blocked patterns on {FILES:,} files**", f"{big:.0f} ms")
    yield Row("… beyond the empty one", f"{big - small:.0f} ms", budget="≤ 150 ms", held=big - small <= 150)


def record(bench: Bench) -> Iterator[Row]:
    """Entries a second, one writer, without waiting for the disk."""
    import subprocess

    bench.log("guards: writing the record")
    best = 0.0
    for _ in range(5):
        done = subprocess.run(
            [str(bench.python), "-c", AUDIT, str(ENTRIES)], capture_output=True, text=True, check=True
        )
        best = max(best, ENTRIES / float(done.stdout))
    yield Row("**record, entries a second**", f"{best:,.0f}", budget="≥ 20,000", held=best >= 20_000)
