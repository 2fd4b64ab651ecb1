"""Adapters: what each adds to `Sandbox.exec`, an MCP tool's call, code sessions, and a sandbox for every sample."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import install
from bench.harness import Bench, Failed, Row, Worker

#: Case -> what it is beside, and how the row is called.
ADAPTERS = {
    "deepagents": ("exec, shell", "deepagents: `SandboxBackend.execute`"),
    "deepagents, async": ("exec, shell", "deepagents: `SandboxBackend.aexecute`"),
    "pydantic-ai": ("exec, words", "Pydantic AI: `SandboxWorkspace.run`"),
    "inspect": ("exec, words", "inspect_ai: `exec`"),
}
ADDED = 0.5  # ms


def rows(bench: Bench) -> Iterator[Row]:
    """Every budget that concerns adapters."""
    python, why = install.integrations()
    if why:
        yield Row("integrations", f"not measured: {why}", held=False)
        return
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as place:
        project = Path(place, "project")
        project.mkdir()
        os.environ["SANDBOX_HOME"] = f"{place}/home"
        try:
            with Worker(python, "bench.workers.adapters", project) as worker:
                yield from commands(bench, worker)
                yield from samples(bench, worker)
        finally:
            del os.environ["SANDBOX_HOME"]


def commands(bench: Bench, worker: Worker) -> Iterator[Row]:
    bench.log("integrations: commands")
    names = ("exec, words", "exec, shell", *ADAPTERS, "session, plain", "session, jupyter", "mcp")
    median = bench.medians({name: worker.case(name) for name in names})
    yield row("`Sandbox.exec` of `true`", median["exec, words"])
    yield row('`Sandbox.exec` of `"true"`, by a shell', median["exec, shell"])
    for name, (bare, what) in ADAPTERS.items():
        ours, beside = median[name], median[bare]
        yield row(f"**{what}** of the same", ours)
        if isinstance(ours, Failed) or isinstance(beside, Failed):
            yield Row("… beyond `Sandbox.exec`", "not measured", budget=f"≤ {ADDED} ms", held=False)
        else:
            added = ours - beside
            yield Row("… beyond `Sandbox.exec`", f"{added:.2f} ms", budget=f"≤ {ADDED} ms", held=added <= ADDED)
    yield row('**`sb.python().run("1+1")`**, after the first', median["session, plain"], 5)
    yield row("… of a Jupyter kernel", median["session, jupyter"], 5)
    yield row("**an MCP tool call of `true`**, `sandbox mcp` over stdio", median["mcp"], 10)


def samples(bench: Bench, worker: Worker) -> Iterator[Row]:
    bench.log("integrations: 1,000 samples")
    try:
        each: float | Failed = worker.ask("samples")
    except Failed as problem:
        each = problem
    yield row("**a sandbox for each of 1,000 inspect samples**, made and ended", each, 15)


def row(what: str, took: float | Failed, most: float | None = None) -> Row:
    budget = "" if most is None else f"≤ {most:g} ms"
    if isinstance(took, Failed):
        return Row(what, f"not measured: {took}", budget=budget, held=False)
    return Row(what, f"{took:.2f} ms", budget=budget, held=None if most is None else took <= most)
