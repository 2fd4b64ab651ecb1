"""srt as a library: what one wrapped command costs a program in Node, with the original and with ours."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from bench import install
from bench.harness import ROOT, Bench, Case, Failed, Row
from bench.walls import budget, npm_version, timed

WORKER = ROOT / "bench" / "workers" / "srt_library.mjs"
ORIGINAL = "@anthropic-ai/sandbox-runtime"


def rows(bench: Bench) -> Iterator[Row]:
    """`wrapWithSandbox('true')`, and the command run, in a session that is initialized already."""
    bench.log("srt: the library")
    client, missing = install.typescript()
    modules = bench.npm / "node_modules"
    node = next(iter(modules.glob("node*/bin/node")), Path("node"))
    with tempfile.TemporaryDirectory(prefix="bench-", dir=pwd.getpwuid(os.getuid()).pw_dir) as project:
        libraries = {"plain": "", "ours": "" if missing else f"{client}/dist/src/srt/index.mjs"}
        if "srt" not in bench.unavailable:
            libraries["srt"] = f"{modules}/{ORIGINAL}/dist/index.js"
        environment = {"SANDBOX_COMMAND": str(bench.python.parent / "sandbox"), "SANDBOX_HOME": f"{project}/.home"}
        workers = {name: NodeWorker(node, library, project, environment) for name, library in libraries.items()}
        workers["bash"] = NodeWorker(node, "", project, environment, "/bin/bash -c true")
        try:
            median = bench.medians({name: worker.case() for name, worker in workers.items()})
        finally:
            for worker in workers.values():
                worker.close()
    ours, plain = Failed(missing) if missing else median["ours"], median["plain"]
    srt = median.get("srt", Failed(bench.unavailable.get("srt", "no reason given")))
    yield timed("`spawn('true', {shell: true})` in Node", plain, plain, "a plain command")
    # What srt's library runs inside, without any sandbox: the least that a wrapped line for a shell can cost.
    yield timed("`spawn('bash -c true', {shell: true})` in Node", median["bash"], plain, "a plain command")
    yield timed("**`wrapWithSandbox('true')` and run, `agent-sandbox/srt`**", ours, plain, "a plain command")
    yield budget("… against srt's library", ours, srt, 1 / 10, "1/10 of srt's library")
    yield timed(
        f"`wrapWithSandbox('true')` and run, srt ({npm_version(bench, ORIGINAL)})", srt, plain, "a plain command"
    )


class NodeWorker:
    """A program in Node that embeds a library and measures one command each time it is told to."""

    def __init__(self, node: Path, library: str, cwd: str, environment: dict[str, str], command: str = "true") -> None:
        self._process = subprocess.Popen(
            [node, WORKER, library, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd,
            env={**os.environ, **environment, "PATH": f"{node.parent}:{os.environ['PATH']}"},
        )  # fmt: skip

    def case(self) -> Case:
        """Milliseconds of one command."""

        def run() -> float:
            assert self._process.stdin is not None and self._process.stdout is not None
            try:
                self._process.stdin.write("\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise Failed("the program in Node ended") from None
            answer = self._process.stdout.readline()
            try:
                return float(answer)
            except ValueError:
                raise Failed(answer.strip() or "the program in Node ended") from None

        return run

    def close(self) -> None:
        """Ends the program."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
