"""`sandbox hook`: the guards for an agent that people already use (Claude Code's PreToolUse hook).

The hook refuses; it does not approve. An answer "allow" would skip the agent's own question to its user, so for what
the rules do not refuse it says nothing, unless `--approve` asks for that.
"""

from __future__ import annotations

import json
import os
import sys

from sandbox.config.whole import write_whole
from sandbox.errors import SandboxError
from sandbox.words import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from sandbox.config.layers import Resolved
    from sandbox.policy.decision import Decision

LARGEST = 16 * 2**20
COMMAND = "sandbox hook pre-tool-use"
_READS = ("Read", "Glob", "Grep", "LS", "NotebookRead")


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox hook pre-tool-use [--agent NAME] [--approve] | install [--global]"
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    asked = actions.add_parser("pre-tool-use", help=_("judge one tool call, given as JSON on standard input"))
    asked.add_argument("--agent", metavar="NAME", help=_("as this agent"))
    asked.add_argument("--approve", action="store_true", help=_("answer allow, without the agent's own question"))
    install = actions.add_parser("install", help=_("write the hook into Claude Code's settings"))
    install.add_argument("--global", dest="everywhere", action="store_true", help=_("for all projects"))


def run(arguments: Namespace) -> int:
    if arguments.action == "install":
        return _install(arguments.everywhere)
    try:
        return _judge(arguments)
    except (SandboxError, OSError):
        raise
    except Exception as problem:
        # A bug of ours must not let the call through either: as an error it blocks.
        raise SandboxError(f"the hook broke: {problem!r}") from problem


def _judge(arguments: Namespace) -> int:
    from sandbox.config.layers import resolve

    call = _call()
    project = str(call.get("cwd") or ".")
    resolved = resolve({}, project=project)
    tool, given = str(call["tool_name"]), call.get("tool_input") or {}
    if not isinstance(given, dict):
        raise SandboxError("tool_input is not a mapping")
    decision = decide(resolved, project, tool, given, arguments.agent)
    if decision and not arguments.approve:
        return 0
    if not decision:
        _record(resolved, arguments.agent, tool, given, decision)
    answer = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "allow" if decision else "deny",
        "permissionDecisionReason": f"sandbox: {decision.reason} (rule: {decision.rule})",
    }
    print(json.dumps({"hookSpecificOutput": answer}))
    return 0


def _call() -> dict[str, Any]:
    data = sys.stdin.buffer.read(LARGEST + 1)
    try:
        call = json.loads(data) if len(data) <= LARGEST else None
    except (ValueError, RecursionError):
        call = None
    if not isinstance(call, dict) or not isinstance(call.get("tool_name"), str):
        raise SandboxError("the hook's input is not a tool call")
    return call


def decide(resolved: Resolved, project: str, tool: str, given: dict[str, Any], agent: str | None) -> Decision:
    """The tool rules, then the file rules for every path the call names."""
    from sandbox.cli.agent import guard
    from sandbox.cli.why import path_decision
    from sandbox.config.agents import find
    from sandbox.policy.tools import NETWORKERS, SHELL, ToolGuard

    config = resolved.config
    tools = guard(find(project, agent), config) if agent else ToolGuard(config.tools, root=config.filesystem.root)
    decision = tools.check(tool, given)
    if not decision:
        return decision
    if tool in NETWORKERS and isinstance(given.get("url"), str):
        from sandbox.cli.why import host_decision

        found = host_decision(resolved, _address(given["url"]))
        if not found:
            return found
    operation = "read" if tool in _READS else "write"
    for key in ("file_path", "notebook_path", "path"):
        if isinstance(given.get(key), str):
            found = path_decision(resolved, given[key], operation)
            if not found:
                return found
    if tool in SHELL:
        for word in shell_paths(str(given.get("command", ""))):
            found = path_decision(resolved, word, "read")
            if not found and (found.rule != "outside-project-root" or word.startswith(("/", "~", ".."))):
                return found
    return decision


def _address(url: str) -> str:
    """The host and port that a URL means. Raises SandboxError when that is not one host."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        raise SandboxError(f"{url!r} is not a URL") from None
    if not parts.hostname:
        raise SandboxError(f"{url!r} is not a URL")
    return f"[{parts.hostname}]:{port}" if ":" in parts.hostname else f"{parts.hostname}:{port}"


def shell_paths(line: str) -> list[str]:
    """The words of a shell line that may be paths. What cannot be read here is left to the walls."""
    from sandbox.policy.shell import Unclear, commands

    try:
        found = commands(line)
    except Unclear:
        return []
    words = [word for command in found for word in (*command.words[1:], *command.writes) if word]
    return [word.partition("=")[2] or word for word in words if "://" not in word and not word.startswith("--")]


def _record(resolved: Resolved, agent: str | None, tool: str, given: dict[str, Any], decision: Decision) -> None:
    from sandbox.sandbox import open_record

    record = open_record(resolved.config, "")
    paths = [given[key] for key in ("file_path", "notebook_path", "path") if isinstance(given.get(key), str)]
    record.write(
        "policy_decision",
        f"{tool} was blocked",
        severity="warn",
        agent=agent or "claude-code",
        operation=f"tool:{tool}",
        # A command may hold secrets: only its first word is kept.
        target=paths[0] if paths else (str(given.get("command", "")).split() or [tool])[0],
        result="blocked",
        policy=decision.rule,
        reason=decision.reason,
        sync=True,
    )
    record.close()


def _install(everywhere: bool) -> int:
    file = os.path.expanduser("~/.claude/settings.json") if everywhere else os.path.abspath(".claude/settings.json")
    settings: dict[str, Any] = {}
    if os.path.exists(file):
        try:
            with open(file, encoding="utf-8") as old:
                settings = json.load(old)
        except ValueError as problem:
            raise SandboxError(f"{file} is not JSON: {problem}") from None
    hooks = settings.setdefault("hooks", {}).setdefault("PreToolUse", [])
    if any(COMMAND in str(one) for one in hooks):
        print(_("the hook is in {file} already").format(file=file))
        return 0
    hooks.append({"matcher": "*", "hooks": [{"type": "command", "command": _from_anywhere()}]})
    os.makedirs(os.path.dirname(file), exist_ok=True)
    write_whole(file, json.dumps(settings, indent=2, ensure_ascii=False) + "\n", mode=0o644)
    print(_("the hook is in {file} now").format(file=file))
    return 0


def _from_anywhere() -> str:
    """Its command line. One that is not found does not block, so it is absolute where PATH does not lead to us."""
    import shlex
    import shutil

    return COMMAND if shutil.which("sandbox") else f"{shlex.quote(sys.executable)} -m {COMMAND}"
