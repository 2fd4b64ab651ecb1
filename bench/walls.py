"""The walls: what a command, a sandbox and a hundred of them cost, beside bare tools and peers."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Bench, Case, Failed, Row, Worker, command

BWRAP = [
    *("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/"),
    *("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "true"),
]
#: Too heavy for a command that runs for a few milliseconds; each is imported only where it is needed.
HEAVY = {
    *("asyncio", "cbor2", "cryptography", "dataclasses", "h11", "h2", "inspect", "json", "msgspec", "pathlib"),
    *("rich", "ssl", "subprocess", "threading", "typing", "yaml"),
}


def rows(bench: Bench) -> Iterator[Row]:
    """Every budget of the design that concerns the walls, and what stands beside it."""
    # A project and a home of their own, where people have projects; codex refuses to have its home in /tmp.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=pwd.getpwuid(os.getuid()).pw_dir) as scratch:
        project, home = Path(scratch, "project"), Path(scratch, "home")
        project.mkdir()
        home.mkdir()
        before = os.getcwd(), os.environ["HOME"]
        os.chdir(project)
        os.environ["HOME"] = str(home)
        yield from commands(bench)
        yield from _agents(bench)
        yield from inside_python(bench, project)
        yield hot_path_imports(bench)
        yield from _images(bench)
        os.chdir(before[0])
        os.environ["HOME"] = before[1]


def _agents(bench: Bench) -> Iterator[Row]:
    from bench.agents import rows  # which uses this module's rows

    yield from rows(bench)


def _images(bench: Bench) -> Iterator[Row]:
    from bench.images import rows  # which uses this module's rows

    yield from rows(bench)


def commands(bench: Bench) -> Iterator[Row]:
    """Whole commands, from spawn to reaped."""
    sandbox = bench.python.parent / "sandbox"
    labels = {
        "true": "`true`, bare",
        "python": "`python -c pass`, the interpreter alone",
        "bwrap": "`bwrap --unshare-all … true`, bare",
        "ours": "**`sandbox run -- true`**",
        "our srt": "**our `srt -- true`**",
        "srt": f"`srt -- true` ({npm_version(bench, '@anthropic-ai/sandbox-runtime')})",
        "codex": f"`codex sandbox -- true` ({npm_version(bench, '@openai/codex')})",
    }
    bench.log("walls: whole commands")
    median = bench.medians(
        {
            "true": command(["true"]),
            "python": command([bench.python, "-c", "pass"]),
            "bwrap": command(BWRAP),
            "ours": command([sandbox, "run", "--", "true"]),
            "our srt": command([bench.python.parent / "srt", "--", "true"]),
            **peers(bench),
        }
    )
    bwrap, ours, srt = median["bwrap"], median["ours"], median.get("srt")
    for name, label in labels.items():
        value = median[name] if name in median else Failed(bench.unavailable[name])
        yield timed(label, value, bwrap, "bare bwrap")
        if name == "ours":
            floor = total(bwrap, median["python"])
            yield budget("… against bare bwrap + interpreter", ours, floor, 2, "2 × (bare bwrap + `python -c pass`)")
            yield budget("… against srt", ours, srt, 1 / 5, "1/5 of `srt`")
        if name == "our srt":
            yield budget("… against srt's own", median["our srt"], srt, 1 / 6, "1/6 of `srt`")


def inside_python(bench: Bench, project: Path) -> Iterator[Row]:
    """From inside a Python program, where the interpreter is already paid for."""
    bench.log("walls: inside Python")
    with (
        Worker(bench.python, "bench.workers.ours", project) as ours,
        Worker(bench.peers_python, "bench.workers.peers", project) as others,
    ):
        cases: dict[str, Case] = {name: ours.case(name) for name in ("first", "life")}
        libraries = ("sandlock", "nono-py")
        cases |= {name: others.case(name) for name in libraries if name not in bench.unavailable}
        median = bench.medians({"bwrap": command(BWRAP), **cases})
        bwrap = median["bwrap"]
        yield timed("`bwrap … true`, bare, once more beside these", bwrap, bwrap, "bare bwrap")
        yield timed("**`Sandbox()` + first command**", median["first"], bwrap, "bare bwrap")
        yield budget("… against bare bwrap", median["first"], bwrap, 1.9, "1.9 × bare bwrap")
        yield timed("the same, and closed again", median["life"], bwrap, "bare bwrap")
        for name in libraries:
            reason = Failed(bench.unavailable.get(name, ""))
            yield timed(f"{name}: sandbox + command (no namespaces)", median.get(name, reason), bwrap, "bare bwrap")
        # A group of their own: the kernel is busy for a while after each sandbox above, taking its namespaces down.
        median = bench.medians({name: ours.case(name) for name in ("subprocess", "further")})
        yield timed("`subprocess.run` of the same", median["subprocess"], median["subprocess"], "subprocess.run")
        yield timed("**a further command**", median["further"], median["subprocess"], "subprocess.run")
        yield budget("… against `subprocess.run`", median["further"], median["subprocess"], 2, "2 × `subprocess.run`")
        yield budget("… in itself", median["further"], 1.0, 2, "2 ms", "ms")
        yield from memory(bench, ours)
        yield from many(bench, ours)


def memory(bench: Bench, ours: Worker) -> Iterator[Row]:
    bench.log("walls: memory of 100 sandboxes alive at once")
    what = "**memory of each of 100 sandboxes**, beyond the first (PSS)"
    try:
        owner, others, machine = (ours.ask(f"memory-{part}") for part in ("owner", "others", "machine"))
    except Failed as error:
        yield Row(what, f"not measured: {error}", budget="≤ 3 MB", held=False)
        return
    figure = f"{owner + others:.2f} MB (owner {owner:.2f}, bwrap and guest {others:.2f})"
    yield Row(what, figure, budget="≤ 3 MB", held=owner + others <= 3)
    yield Row("… the whole machine's, with the kernel's share (noisy)", f"{machine:.2f} MB")


def many(bench: Bench, ours: Worker) -> Iterator[Row]:
    bench.log("walls: 1,000 sandboxes alive at once")
    what = "**the 1,000th sandbox alive in one process**, against the first"
    try:
        first, last, first_cpu, last_cpu, closing = (
            ours.ask(f"many-{part}") for part in ("first", "last", "first-cpu", "last-cpu", "close")
        )
    except Failed as error:
        yield Row(what, f"not measured: {error}", budget="≤ 1.3 × the first", held=False)
        return
    figure = f"{last:.2f} ms ({last / first:.2f} × {first:.2f} ms)"
    yield Row(what, figure, budget="≤ 1.3 × the first", held=last <= 1.3 * first)
    figure = f"{last_cpu:.2f} ms ({last_cpu / first_cpu:.2f} × {first_cpu:.2f} ms)"
    yield Row("… by the owner's processor time", figure, budget="≤ 1.3 × the first", held=last_cpu <= 1.3 * first_cpu)
    yield Row("… closing all 1,000", f"{closing:.1f} s", budget="≤ 4 s", held=closing <= 4)


def hot_path_imports(bench: Bench) -> Row:
    """What `sandbox run -- true` imports, from `python -X importtime`."""
    what = f"heavy imports of `sandbox run -- true` ({len(HEAVY)} looked for)"
    argv: list[str | Path] = [bench.python, "-X", "importtime", bench.python.parent / "sandbox", "run", "--", "true"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    if done.returncode or not lines:
        return Row(what, f"not measured: exit status {done.returncode}", budget="none", held=False)
    modules = {line.rsplit("|", 1)[1].strip() for line in lines[1:]}
    heavy = sorted({module.partition(".")[0] for module in modules} & HEAVY)
    return Row(what, f"{', '.join(heavy) or 'none'} ({len(modules)} modules in all)", budget="none", held=not heavy)


def peers(bench: Bench) -> dict[str, Case]:
    """Peers that are commands, started as directly as they allow."""
    modules = bench.npm / "node_modules"
    node = next(iter(modules.glob("node*/bin/node")), Path("node"))
    env = {"PATH": f"{node.parent}:{os.environ['PATH']}"}
    found: dict[str, Case] = {}
    if "srt" not in bench.unavailable:
        found["srt"] = command([node, modules / "@anthropic-ai/sandbox-runtime/dist/cli.js", "--", "true"], env)
    if "codex" not in bench.unavailable:
        # The program itself, without the Node launcher in front of it.
        programs = modules.glob("@openai/codex*/vendor/*/bin/codex")
        found["codex"] = command([next(programs, modules / ".bin" / "codex"), "sandbox", "--", "true"], env)
    return found


def npm_version(bench: Bench, package: str) -> str:
    manifest = bench.npm / "node_modules" / package / "package.json"
    return str(json.loads(manifest.read_text())["version"]) if manifest.is_file() else "not installed"


def timed(what: str, value: float | Failed, base: float | Failed, unit: str) -> Row:
    if isinstance(value, Failed):
        return Row(what, f"not measured: {value}")
    ratio = "" if isinstance(base, Failed) else f"{value / base:.2f} × {unit}"
    return Row(what, f"{value:.2f} ms", ratio)


def budget(
    what: str, value: float | Failed, base: float | Failed | None, factor: float, words: str, unit: str = "×"
) -> Row:
    """A row that is held when `value` is at most `factor` times `base`; what was not measured is not held."""
    if base is None or isinstance(base, Failed) or isinstance(value, Failed):
        return Row(what, "not measured", budget=f"≤ {words}", held=False)
    return Row(what, "", f"{value / base:.2f} {unit}", f"≤ {words}", value <= factor * base)


def total(*values: float | Failed) -> float | Failed:
    for value in values:
        if isinstance(value, Failed):
            return value
    return sum(value for value in values if not isinstance(value, Failed))
