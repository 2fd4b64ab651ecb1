"""Served directories: our FUSE server beside pyfuse3 with the same provider, native files, the kernel's own mounts."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bench.harness import ROOT, Bench, Case, Failed, Row
from bench.install import pyfuse3

SIZE = 256 * 2**20
PIECE = 2**20
FILES = 1000
TREE = 10_000
TURNS = 5
#: What is done in a sandbox, in a directory that the kernel serves: the best of five, since the way through the kernel
#: is to be compared and not what else it has to do (writing back) at the moment.
BEST = (
    "import os,time,sys\ndef timed():\n t=time.perf_counter(); work(sys.argv[1]); return time.perf_counter()-t\n"
    "print(min(timed() for _ in range(5))*1000)"
)
INSIDE = {
    "64 MB, written and read": (
        "def work(place):\n fd=os.open(place+'/big',os.O_RDWR|os.O_CREAT|os.O_TRUNC)\n b=bytes(1<<20)\n"
        " for _ in range(64): os.write(fd,b)\n os.lseek(fd,0,0)\n while os.read(fd,1<<20): pass\n os.close(fd)\n"
    ),
    "500 files": (
        "def work(place):\n for i in range(500):\n  p=place+'/f%d'%i\n"
        "  os.close(os.open(p,os.O_CREAT|os.O_WRONLY)); os.stat(p); os.unlink(p)\n"
    ),
}


def rows(bench: Bench) -> Iterator[Row]:
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        yield Row("served directories (FUSE)", "not measured: mounting outside a sandbox needs root and /dev/fuse")
        return
    bench = replace(bench, repetitions=min(bench.repetitions, TURNS))
    with tempfile.TemporaryDirectory(prefix="bench-vfs-") as scratch, ExitStack() as stack:
        yield from _memory(bench, Path(scratch), stack)
        yield from _git(bench, Path(scratch), stack)
        yield from _kernel_backed(bench, Path(scratch), stack)


def _memory(bench: Bench, scratch: Path, stack: ExitStack) -> Iterator[Row]:
    """Bytes and names, through each transport."""
    bench.log("vfs: bytes and names through FUSE")
    places = {"ours": stack.enter_context(served(bench, "ours", scratch / "ours"))}
    peer, why_not = pyfuse3()
    if not why_not:
        places["pyfuse3"] = stack.enter_context(served(replace(bench, python=peer), "pyfuse3", scratch / "pyfuse3"))
    cases: dict[str, Case] = {}
    for way, place in places.items():
        for name, make in (("write", writing), ("read", reading), ("names", naming)):
            cases[f"{way} {name}"] = _or_failed(make(place))
    median = bench.medians(cases)
    labels = {
        "write": ("write 256 MB", SIZE / 1e6, "MB/s", 400),
        "read": ("read 256 MB, nothing cached", SIZE / 1e6, "MB/s", 1000),
        "names": ("create, stat, unlink", FILES, "/s", 4000),
    }
    for name, (label, amount, unit, least) in labels.items():
        ours, theirs = median[f"ours {name}"], median.get(f"pyfuse3 {name}", Failed(why_not))
        yield _rate(f"pyfuse3: {label}", amount, theirs, unit)
        yield _rate(f"**FUSE, MemoryProvider: {label}**", amount, ours, unit, least)
        if isinstance(ours, Failed) or isinstance(theirs, Failed):
            yield Row("… against pyfuse3", "not measured", budget="faster", held=None)
        else:
            yield Row("… against pyfuse3", "", f"{theirs / ours:.2f} ×", "faster", theirs > ours)


def _git(bench: Bench, scratch: Path, stack: ExitStack) -> Iterator[Row]:
    bench.log(f"vfs: git status on {TREE} files")
    native = scratch / "tree"
    _make_tree(native)
    place = stack.enter_context(served(bench, "ours", scratch / "git", native))
    median = bench.medians({"native": git_status(native), "served": git_status(place)})
    ours, base = median["served"], median["native"]
    yield Row(f"`git status`, {TREE} files, native, warm", _milliseconds(base))
    if isinstance(ours, Failed) or isinstance(base, Failed):
        yield Row("**… through FUSE, RealFSProvider**", _milliseconds(ours), budget="≤ 10 × native", held=False)
    else:
        ratio = ours / base
        held = ratio <= 10
        yield Row("**… through FUSE, RealFSProvider**", _milliseconds(ours), f"{ratio:.2f} ×", "≤ 10 × native", held)


def _kernel_backed(bench: Bench, scratch: Path, stack: ExitStack) -> Iterator[Row]:
    """Inside a sandbox: directories made by the kernel against the plain bind of the project."""
    bench.log("vfs: kernel-backed directories in a sandbox")
    from sandbox import Sandbox

    for name in ("project", "real", "base"):
        (scratch / name).mkdir()
    base, real = ({"type": "real_fs", "host_path": str(scratch / name)} for name in ("base", "real"))
    mounts = {"/real": real, "/overlay": {"type": "overlay", "upper": base, "lower": real}}
    config = {"filesystem": {"root": str(scratch / "project")}, "vfs": {"mounts": mounts}}
    sandbox = stack.enter_context(Sandbox(config))

    def inside(work: str, place: str) -> Case:
        def run() -> float:
            result = sandbox.exec(["/usr/bin/python3", "-c", INSIDE[work] + BEST, place])
            if result.exit_code:
                raise Failed(result.stderr[-100:])
            return float(result.stdout)

        return run

    places = {"plain": str(scratch / "project"), "real_fs": "/real", "overlay": "/overlay"}
    for work in INSIDE:
        # All of them are watched over for blocked files that appear, and whether the watch wakes up for each file or
        # for many at once decides whether 500 take 4 ms or 28: the best, because the mounts are to be compared.
        best = replace(bench, repetitions=21).bests({name: inside(work, place) for name, place in places.items()})
        plain = best["plain"]
        yield Row(f"{work} in the project (a plain bind)", _milliseconds(plain))
        for name in ("real_fs", "overlay"):
            took = best[name]
            if isinstance(took, Failed) or isinstance(plain, Failed):
                yield Row(f"… in a mount of type {name}", "not measured", budget="≤ 1.05 × plain bind", held=False)
                continue
            # To make a file in two layers is more work for the kernel itself; nothing of ours is on the way.
            kernels_own = (name, work) == ("overlay", "500 files")
            budget = ("", None) if kernels_own else ("≤ 1.05 × plain bind", took <= 1.05 * plain)
            yield Row(f"… in a mount of type {name}", _milliseconds(took), f"{took / plain:.2f} ×", *budget)


@contextmanager
def served(bench: Bench, way: str, place: Path, host: Path | None = None) -> Iterator[Path]:
    """A directory served by another process, as a tenant has it."""
    place.mkdir()
    words = [str(bench.python), "-m", "bench.workers.vfs", way, str(place), *([str(host)] if host else [])]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT)
    assert process.stdout
    if process.stdout.readline() != "ready\n":
        raise Failed(f"{way} did not mount")
    try:
        yield place
    finally:
        process.communicate(timeout=30)


def _or_failed(case: Case) -> Case:
    def run() -> float:
        try:
            return case()
        except OSError as problem:
            raise Failed(problem.strerror) from problem

    return run


def writing(place: Path) -> Case:
    piece = os.urandom(PIECE)

    def run() -> float:
        fd = os.open(place / "big", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        start = time.perf_counter()
        for _ in range(SIZE // PIECE):
            os.write(fd, piece)
        os.fsync(fd)
        elapsed = time.perf_counter() - start
        os.close(fd)
        return elapsed * 1000

    return run


def reading(place: Path) -> Case:
    """Of what `writing` left, which always has its turn first."""
    buffer = bytearray(PIECE)

    def run() -> float:
        fd = os.open(place / "big", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        start, got = time.perf_counter(), 0
        while count := os.readv(fd, [buffer]):
            got += count
        elapsed = time.perf_counter() - start
        os.close(fd)
        if got != SIZE:
            raise Failed(f"{got} bytes came back")
        return elapsed * 1000

    return run


def naming(place: Path) -> Case:
    def run() -> float:
        start = time.perf_counter()
        for number in range(FILES):
            path = f"{place}/file-{number}"
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
            os.stat(path)
            os.unlink(path)
        return (time.perf_counter() - start) * 1000

    return run


def git_status(place: Path) -> Case:
    argv = ["git", "-C", str(place), "-c", "safe.directory=*", "status", "--porcelain"]

    def run() -> float:
        start = time.perf_counter()
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        elapsed = (time.perf_counter() - start) * 1000
        if done.returncode or done.stdout:
            raise Failed((done.stderr or done.stdout).strip().splitlines()[-1])
        return elapsed

    return run


def _make_tree(place: Path) -> None:
    for number in range(TREE):
        path = place / f"d{number % 100}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    git = ["git", "-C", str(place), "-c", "user.email=a@b", "-c", "user.name=n"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "tree"]):
        subprocess.run([*git, *words], check=True)


def _rate(what: str, amount: float, took: float | Failed, unit: str, least: float | None = None) -> Row:
    if isinstance(took, Failed):
        return Row(what, f"not measured: {took}", held=None if least is None else False)
    rate = amount / took * 1000
    if least is None:
        return Row(what, f"{rate:,.0f} {unit}")
    return Row(what, f"{rate:,.0f} {unit}", "", f"≥ {least:,} {unit}", rate >= least)


def _milliseconds(took: float | Failed) -> str:
    return f"not measured: {took}" if isinstance(took, Failed) else f"{took:.1f} ms"
