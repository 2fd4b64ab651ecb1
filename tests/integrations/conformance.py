"""Runs MCP's conformance checks (from npm) against a server that prints its address and token as `sandbox mcp` does."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

MODULES = Path(__file__).resolve().parents[2] / ".integrations" / "mcp" / "node_modules"
CHECKS = str(MODULES / ".bin" / "conformance")
Run = Callable[..., "subprocess.CompletedProcess[str]"]
#: The checks send no token; a server without one is nothing that we have.
WITH_TOKEN = """
const { getGlobalDispatcher, setGlobalDispatcher } = require(process.env.UNDICI)
const token = ['authorization', process.env.TOKEN]
const add = (given) => Array.isArray(given) ? [...given, ...token] : { ...given, [token[0]]: token[1] }
setGlobalDispatcher(getGlobalDispatcher().compose((dispatch) => (options, handler) =>
  dispatch({ ...options, headers: add(options.headers) }, handler)))
"""


def listed(run: Run) -> list[str]:
    """The names of all checks of servers."""
    return re.findall(r"^  - (\S+)$", run(CHECKS, "list", "--server").stdout, re.MULTILINE)


def failures(run: Run, server: list[str], scenarios: list[str], place: Path) -> dict[str, str]:
    """The checks that do not pass against `server`, a command, with what they said. `run` starts a program."""
    (place / "token.cjs").write_text(WITH_TOKEN)
    process = subprocess.Popen(server, cwd=place, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = process.stderr.readline().strip()
        token = process.stderr.readline().strip().removeprefix("Authorization: ")
        more = {"TOKEN": token, "UNDICI": str(MODULES / "undici"), "NODE_OPTIONS": f"--require {place}/token.cjs"}
        more |= {"HTTP_PROXY": "", "HTTPS_PROXY": ""}
        done = {one: run(CHECKS, "server", "--url", address, "--scenario", one, **more) for one in scenarios}
    finally:
        process.terminate()
        process.wait(30)
    return {one: ended.stdout[-2000:] for one, ended in done.items() if ended.returncode != 0}
