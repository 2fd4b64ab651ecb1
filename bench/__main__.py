"""`python -m bench [--user] [subject…]`: installs, measures, prints the table, and keeps it if nothing was left out."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import traceback
from pathlib import Path

from bench import install
from bench.harness import ROOT, Bench, Row, machine, table

SUBJECTS = (
    "walls", "gate", "guards", "rpc", "srt_library", "vfs", "caches", "containers", "vm",
    "server", "signing", "desktop", "pool", "integrations",
)  # fmt: skip


def main() -> int:
    options = arguments()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # import times without bytecode are not what a user has
    if options.user and os.geteuid() == 0:
        prepare()
        return as_user(options)
    bench = prepare(options.repetitions) if not options.prepared else found(options.repetitions)
    rows: list[Row] = []
    failed: list[str] = []
    for name in options.subjects:
        try:
            rows += importlib.import_module(f"bench.{name}").rows(bench)
        except Exception:  # noqa: BLE001 - the other subjects took half an hour
            traceback.print_exc()
            failed.append(name)
    report = render(rows, bench)
    print(report)
    if not options.prepared and set(options.subjects) == set(SUBJECTS):  # a part would take the place of the whole
        (ROOT / "bench" / "results.md").write_text(report + "\n", encoding="utf-8")
    if failed:
        print(f"bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed or any(row.held is False for row in rows) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Side by side with bare tools and peers.")
    parser.add_argument("subjects", nargs="*", metavar="subject", help=f"of: {', '.join(SUBJECTS)} (all)")
    parser.add_argument("--repetitions", type=int, default=31)
    parser.add_argument("--user", action="store_true", help="as root: measure as the tests' ordinary user")
    parser.add_argument("--prepared", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.subjects = options.subjects or list(SUBJECTS)
    if unknown := set(options.subjects) - set(SUBJECTS):
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    return options


def prepare(repetitions: int = 0) -> Bench:
    print("bench: installing ours and the peers into .bench/", file=sys.stderr, flush=True)
    python = install.ours()
    npm, peers_python, unavailable = install.peers()
    return Bench(repetitions, python, npm, peers_python, unavailable)


def found(repetitions: int) -> Bench:
    """What the installing half left, for the half that runs as another user."""
    place = install.PLACE
    return Bench(repetitions, place / "ours/bin/python", place / "npm", place / "peers/bin/python")


def as_user(options: argparse.Namespace) -> int:
    argv = [str(ROOT / "scripts" / "as-user"), sys.executable, "-m", "bench", "--prepared"]
    argv += [f"--repetitions={options.repetitions}", *options.subjects]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        print(f"bench: nothing measured; can the user read {ROOT}?", file=sys.stderr)
        return done.returncode
    print(done.stdout, end="")
    (ROOT / "bench" / "results-user.md").write_text(done.stdout, encoding="utf-8")
    return done.returncode


def render(rows: list[Row], bench: Bench) -> str:
    budgets = [row.held for row in rows if row.held is not None]
    verdict = f"{budgets.count(True)} of {len(budgets)} budgets held"
    how = f"Medians of {bench.repetitions} turns; the cases of a group take turns."
    return f"# Benchmarks\n\n{machine(Path(bench.python))}.\n{how}\n\n{table(rows)}\n\n{verdict}."


if __name__ == "__main__":
    sys.exit(main())
