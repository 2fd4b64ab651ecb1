"""Run inside a sandbox: gives each line to bash with a `rm` that leaves a mark, and prints those that ran it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

DEADLINE = 2  # a line may wait for ever, or run for ever; what it ran until then counts


def ran(line: str) -> bool:
    top = tempfile.mkdtemp()
    programs, work, mark = f"{top}/programs", f"{top}/work", f"{top}/mark"
    os.mkdir(programs)
    os.mkdir(work)
    for name in ("bash", "cat", "env", "find", "git", "ls", "sh", "timeout", "true", "xargs"):
        found = shutil.which(name)
        if found is not None:
            os.symlink(found, f"{programs}/{name}")
    with open(f"{programs}/rm", "w") as file:
        file.write(f"#!/bin/sh\n: > {mark}\n")
        os.fchmod(file.fileno(), 0o755)
    environment = {"PATH": programs, "HOME": work}
    closed = subprocess.DEVNULL
    with subprocess.Popen(["/bin/bash", "-c", line], env=environment, cwd=work, stdin=closed, stdout=closed,
                          stderr=closed, start_new_session=True) as process:  # fmt: skip
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    marked = os.path.exists(mark)
    shutil.rmtree(top, ignore_errors=True)
    return marked


print(json.dumps([line for line in json.load(sys.stdin) if ran(line)]))
