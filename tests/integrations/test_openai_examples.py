"""OpenAI Agents SDK: its own examples for sandboxes, as they are, with our client instead of the one without walls.

`scripts/integrations` unpacks the SDK's source into `.integrations/source`. Most of the examples check what they
did themselves; a script plays the model.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.registry.registry import entries
from tests.integrations.openai_api import Item, Model, api, call, outputs, patch, shell, text
from tests.sandboxes import home

__all__ = ["home"]
pytestmark = pytest.mark.integrations
SOURCE = Path(__file__).parents[2] / ".integrations" / "source" / "openai-agents"
RUN = """
import runpy, sys
import agents.sandbox.sandboxes as every, agents.sandbox.sandboxes.unix_local as one
from sandbox.integrations.openai_client import AgentSandboxClient
every.UnixLocalSandboxClient = one.UnixLocalSandboxClient = AgentSandboxClient
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
LOOK = "cat * >/dev/null; id -un; cat /proc/sys/kernel/random/boot_id /etc/shadow"


def steps(*items: Callable[[], Item]) -> Model:
    """Says one after another, as often as tools have answered; a text at the end."""

    def model(request: Item) -> list[Item]:
        told = len(outputs(request))
        return [items[told]() if told < len(items) else text("done")]

    return model


def typed(request: Item) -> list[Item]:
    """A Python at a terminal, whose number the first answer has."""
    told = outputs(request)
    if not told:
        return [call("exec_command", cmd="python3 -q", tty=True, yield_time_ms=1000)]
    number = int(re.search(r"session ID (\d+)", told[0])[1])  # type: ignore[index]
    lines = ["5 + 5\n", "_ + 5\n", "exit()\n"]
    if len(told) <= len(lines):
        return [call("write_stdin", session_id=number, chars=lines[len(told) - 1], yield_time_ms=1000)]
    return [text("done")]


def task(request: Item) -> list[Item]:
    """The two tasks of `shared_session_workdirs`, which run at the same time."""
    name = "task-a" if "task-a" in str(request["input"][0]) else "task-b"
    change = f"*** Update File: notes.md\n@@\n task={name}\n-status=pending-{name}\n+status=complete-{name}\n"
    look = "cp reference.png page.png && cat brief.md"
    model: Model = steps(
        lambda: call("exec_command", cmd=look), lambda: call("view_image", path="page.png"), lambda: patch(change)
    )
    return model(request)


def whichever(request: Item) -> list[Item]:
    """Calls every tool that gets a sandbox going, once."""
    known = {one.get("name", one["type"]) for one in request["tools"]}
    called = {one.get("name", one["type"]) for one in request["input"] if isinstance(one, dict) and "type" in one}
    if "shell" in known and "shell_call" not in called:
        return [shell(LOOK)]
    for name in sorted(known - called):
        if name.startswith("transfer_to_"):
            return [call(name)]
        if name.startswith("review_"):
            return [call(name, input="go")]
    said = (request.get("text") or {}).get("format") or {}
    return [text(_least(said["schema"]) if said.get("type") == "json_schema" else "done")]


def _least(schema: Item) -> str:
    """The smallest object that a schema takes."""
    kinds: dict[str, Any] = {"string": "x", "array": [], "boolean": False, "integer": 0, "number": 0}
    fields = {name: one.get("enum", [kinds.get(one.get("type"), "x")])[0] for name, one in schema["properties"].items()}
    return json.dumps(fields)


CAPABILITIES = steps(
    lambda: call("exec_command", cmd="ls; cat README.md"),
    lambda: call("view_image", path="examples/image.png"),
    lambda: call("load_skill", skill_name="capability-proof"),
    lambda: patch("*** Add File: verification/capabilities.txt\n+skill_loaded=true\n+codename=atlas\n"),
    lambda: patch(
        "*** Update File: verification/capabilities.txt\n@@\n skill_loaded=true\n codename=atlas\n"
        "+note_source=filesystem\n+image_verified=true\n"
    ),
    lambda: patch("*** Add File: verification/delete-me.txt\n+x\n"),
    lambda: patch("*** Delete File: verification/delete-me.txt\n"),
    lambda: call("exec_command", cmd="cat verification/capabilities.txt"),
)
CODING = steps(
    lambda: call("exec_command", cmd="cat repo/task.md"),
    lambda: call("load_skill", skill_name="credit-note-fixer"),
    lambda: patch(
        "*** Update File: repo/credit_note.sh\n@@\n"
        '-printf \'Credit note for %s: -$%s debit.\\n\' "$customer" "$amount"\n'
        '+printf \'Credit note for %s: $%s credit.\\n\' "$customer" "${amount#-}"\n'
    ),
    lambda: call("exec_command", cmd="cd repo && sh tests/test_credit_note.sh"),
)
EXAMPLES = {
    "unix_local_runner": steps(lambda: shell(LOOK)),
    "unix_local_runner --stream": steps(lambda: shell(LOOK)),
    "unix_local_runner --verify-extra-path-grants": steps(),
    "unix_local_pty": typed,
    "sandbox_agent_capabilities": CAPABILITIES,
    "shared_session_workdirs": task,
    "docs.coding_task": CODING,
    "handoffs": whichever,
    "sandbox_agents_as_tools": whichever,
    "sandbox_agent_with_tools": whichever,
    "memory": steps(lambda: call("exec_command", cmd="ls")),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_sdk_works_unchanged(name: str, home: Path, tmp_path: Path) -> None:
    assert (SOURCE / "examples" / "sandbox").is_dir(), "run scripts/integrations"
    (tmp_path / "tmp").mkdir()
    with api(EXAMPLES[name]) as server:
        env = {
            **os.environ,
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "not-a-key",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "TMPDIR": str(tmp_path / "tmp"),
        }
        command = [sys.executable, "-c", RUN, *f"examples.sandbox.{name}".split()]
        done = subprocess.run(command, cwd=SOURCE, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        if name == "unix_local_pty":
            assert "15" in server.outputs[2], server.outputs
        for told in (str(one) for request in server.requests for one in outputs(request)):
            assert "root:" not in told  # of /etc/shadow
    assert list((tmp_path / "tmp").glob("sandbox-openai-*")) == []
    assert [one.id for one in entries(str(home)) if one.running] == []
