"""`sandbox hook`: isolation for Claude Code, through its hooks.

Checking a command's text is not isolation, so the hook replaces the command by the same one in a sandbox, which lives
as long as the session, and approves only that. File tools run on the host and are checked by path. For a call that it
does not refuse, the hook gives no answer, so that Claude Code still asks its user.
"""

from __future__ import annotations

import json
import os
import shlex
import sys

from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from sandbox.config.layers import Resolved
    from sandbox.policy.decision import Decision

LARGEST = 16 * 2**20
PATIENCE = 50  # seconds: if it took longer, Claude Code would go on without the hook
LONGEST = 60_000  # bytes of a command: quoted, it is one argument, and the kernel allows 128 KiB
WRAPPED = ("Bash", "Monitor")  # tools with a shell line in `command`
NAMERS = ("SlashCommand", "Skill")  # tools with the name of a prompt in `command`


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox hook install [--global] [--judge-only] | uninstall [--global] | status | pre-tool-use …"
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    install = actions.add_parser("install", help=_("add the hook to Claude Code's settings"))
    uninstall = actions.add_parser("uninstall", help=_("remove the hook from Claude Code's settings"))
    for one in (install, uninstall):
        one.add_argument("--global", dest="everywhere", action="store_true", help=_("for all projects"))
    actions.add_parser("status", help=_("show where the hook is installed"))
    asked = actions.add_parser("pre-tool-use", help=_("check one tool call, read as JSON from standard input"))
    for one in (install, asked):
        one.add_argument("--agent", metavar="NAME", help=_("use this agent's rules"))
        one.add_argument(
            "--judge-only",
            action="store_true",
            help=_("only check the text of commands instead of running them in a sandbox"),
        )
        one.add_argument(
            "--approve", action="store_true", help=_("approve commands that run in the sandbox (always on)")
        )
    actions.add_parser("post-tool-use", help=_("verify that a command ran in the sandbox"))
    actions.add_parser("session-end", help=_("end the session's sandbox"))
    execute = actions.add_parser("exec", help=_("run a checked command in the session's sandbox"))
    for name in ("session", "call", "command"):
        execute.add_argument(name)


def run(arguments: Namespace) -> int:
    from sandbox.cli import hook_settings

    action = arguments.action
    if action == "install":
        options = ["--agent", arguments.agent] if arguments.agent else []
        return hook_settings.install(arguments.everywhere, [*options, *(["--judge-only"] * arguments.judge_only)])
    if action == "uninstall":
        return hook_settings.uninstall(arguments.everywhere)
    if action == "status":
        return hook_settings.status()
    if action == "exec":
        from sandbox.cli.hook_session import execute

        return execute(arguments.session, arguments.call, arguments.command)
    try:
        _within_time()
        return {"pre-tool-use": _judge, "post-tool-use": _look_back, "session-end": _end}[action](arguments)
    except (SandboxError, OSError):
        raise
    except Exception as problem:
        # A bug in this hook must not allow the call either: an error blocks it.
        raise SandboxError("the hook failed: {problem!r}", problem=problem) from problem


def _within_time() -> None:
    import signal

    def late(*_unused: object) -> None:
        raise SandboxError("the hook took too long")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE)


def _call() -> dict[str, Any]:
    data = sys.stdin.buffer.read(LARGEST + 1)
    try:
        call = json.loads(data) if len(data) <= LARGEST else None
    except (ValueError, RecursionError):
        call = None
    if not isinstance(call, dict):
        raise SandboxError("the hook's input is not a tool call")
    return call


def _project(call: dict[str, Any]) -> tuple[str, str]:
    """The project, and the directory of the call, which may be below it."""
    if not isinstance(call.get("cwd") or "", str):
        raise SandboxError("the hook's input is not a tool call")
    cwd = os.path.abspath(call.get("cwd") or ".")
    return os.path.abspath(os.environ.get("CLAUDE_PROJECT_DIR") or cwd), cwd


def _judge(arguments: Namespace) -> int:
    from sandbox.cli.hook_files import FileJudge, well_formed
    from sandbox.cli.hook_settings import written_by_tenants
    from sandbox.config.layers import resolve

    call = _call()
    tool, given = call.get("tool_name"), call.get("tool_input")
    given = {} if given is None or given == [] else given
    if not isinstance(tool, str) or not isinstance(given, dict) or not well_formed(tool, given):
        raise SandboxError("the hook's input is not a tool call")
    project, cwd = _project(call)
    resolved = resolve({}, project=project)
    filesystem = resolved.config.filesystem
    own = written_by_tenants([filesystem.root, *map(os.path.expanduser, filesystem.allow_write)])
    if own is not None:
        raise SandboxError("the agent's commands can change the hook's own program: {own}", own=own)
    files = FileJudge(resolved, cwd)
    refused = refusal(resolved, project, files, tool, given, arguments.agent)
    if refused is not None:
        _record(resolved, arguments.agent, tool, given, refused)
        return _answer("deny", f"sandbox: {refused.reason} (rule: {refused.rule})")
    if tool in ("PowerShell", "Shell") or _may_be_shell(tool, given):
        return _answer("deny", "sandbox: commands run in the sandbox by the Bash tool only")
    if tool not in WRAPPED:
        return 0
    if not isinstance(given.get("command"), str):
        raise SandboxError("the hook's input is not a tool call")
    if arguments.judge_only or not _has_walls(resolved):
        return _advise(resolved, arguments.agent, files, tool, given)
    return _behind_walls(arguments, call, resolved, project, given)


def _may_be_shell(tool: str, given: dict[str, Any]) -> bool:
    """Whether it is a tool of Claude Code's own, unknown here, with a command. MCP tools have "__" in their names."""
    return tool not in (*WRAPPED, *NAMERS) and "__" not in tool and isinstance(given.get("command"), str)


def _has_walls(resolved: Resolved) -> bool:
    from sandbox.engines.choose import engine_name

    config = resolved.config
    return config.enabled and config.mode != "off" and engine_name(config) != "none"


def refusal(
    resolved: Resolved, project: str, files: Any, tool: str, given: dict[str, Any], agent: str | None
) -> Decision | None:
    """Why the call is refused: by the tool rules, the host rules, or the file rules for every path it names."""
    from sandbox.cli.agent import guard
    from sandbox.config.agents import find
    from sandbox.policy.tools import NETWORKERS, ToolGuard

    config = resolved.config
    tools = guard(find(project, agent), config) if agent else ToolGuard(config.tools, root=config.filesystem.root)
    # Rules for Bash apply to every tool that runs a shell line.
    decision: Decision = tools.check("Bash" if tool in WRAPPED else tool, given)
    if not decision:
        return decision
    if tool in NETWORKERS and isinstance(given.get("url"), str):
        from sandbox.cli.why import host_decision

        decision = host_decision(resolved, _address(given["url"]))
        return None if decision else decision
    if tool in WRAPPED:
        return _claudes_own(project, given)
    found: Decision | None = files.call(tool, given)
    return found


def _claudes_own(project: str, given: dict[str, Any]) -> Decision | None:
    """Applies Claude Code's own deny rules for commands: it would compare them with our answer, which none matches."""
    from sandbox.cli.hook_settings import shell_rules

    decision = _by_rules(shell_rules(project, "deny"), project, given)
    return None if decision else decision


def _by_rules(rules: list[str], project: str, given: dict[str, Any]) -> Decision:
    from sandbox.config.model import Tools
    from sandbox.policy.tools import ToolGuard

    return ToolGuard(Tools(), root=project, disallowed=rules).check("Bash", given)


def _behind_walls(
    arguments: Namespace, call: dict[str, Any], resolved: Resolved, project: str, given: dict[str, Any]
) -> int:
    """Answers with the same command in the session's sandbox. Raises SandboxError if that cannot start."""
    from sandbox.cli.hook_session import HookSession, proof
    from sandbox.cli.hook_settings import program, shell_rules

    command = given["command"]
    if len(command.encode("utf-8", "surrogatepass")) > LONGEST or "\0" in command:
        return _answer("deny", f"sandbox: a command may have {LONGEST} bytes; write a file and run that")
    session = HookSession.of(call, project)
    if session.broken:
        raise SandboxError(
            "a command of this session ran outside the sandbox; restart Claude Code without "
            "other hooks that return updatedInput"
        )
    proved = proof(call, project)
    if not os.path.exists(proved) and command.strip() != "true":
        return _answer(
            "deny",
            "sandbox: run exactly `true` once first, then this command again. It shows that this Claude Code runs "
            "commands in the sandbox as the hook answers; until then none is let through.",
        )
    session.ready(resolved, arguments.agent)
    name = str(call.get("tool_use_id") or os.urandom(16).hex())
    session.expect(name, command, proved)
    words = [*program(), "hook", "exec", session.key, name, "--", command]
    asks = not _by_rules(shell_rules(project, "ask"), project, given)
    # The whole input: Claude Code drops what `updatedInput` leaves out.
    return _answer(
        "ask" if asks else "allow",
        "runs in the sandbox",
        {**given, "command": shlex.join(words)},
    )


def _advise(resolved: Resolved, agent: str | None, files: Any, tool: str, given: dict[str, Any]) -> int:
    from sandbox.cli.hook_advice import judge

    decision, unread = judge(given["command"], files)
    if decision is not None:
        _record(resolved, agent, tool, given, decision)
        return _answer("deny", f"sandbox (advice from the command's text): {decision.reason} (rule: {decision.rule})")
    if unread is not None:
        return _answer("ask", f"sandbox cannot read what this command does ({unread}); it only advises here")
    return 0


def _answer(decision: str, reason: str, changed: dict[str, Any] | None = None) -> int:
    answer: dict[str, Any] = {
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": reason,
    }
    if changed is not None:
        answer["updatedInput"] = changed
    print(json.dumps({"hookSpecificOutput": answer}))
    return 0


def _look_back(_arguments: Namespace) -> int:
    """After a command: if it did not run in the sandbox, all further commands of this session are blocked."""
    from sandbox.cli.hook_session import HookSession, proof

    call = _call()
    project, _cwd = _project(call)
    session = HookSession.of(call, project)
    ran = call.get("tool_input")
    if not session.missed(str(call.get("tool_use_id") or ""), ran if isinstance(ran, dict) else {}):
        return 0
    session.spoil()
    _record_outside(project, str(call.get("tool_name") or "Bash"))
    try:
        os.unlink(proof(call, project))
    except FileNotFoundError:
        pass
    raise SandboxError(
        "this command ran OUTSIDE the sandbox: Claude Code ignored the hook's updatedInput "
        "(another hook returned one too, or this version is too old). All further commands are "
        "blocked"
    )


def _record_outside(project: str, tool: str) -> None:
    from sandbox.config.layers import resolve
    from sandbox.sandbox import open_record

    record = open_record(resolve({}, project=project).config, "")
    record.write(
        "sandbox_mode_transition",
        f"a command of {tool} ran outside the sandbox: the hook's answer was not run",
        severity="error",
        agent="claude-code",
        sync=True,
    )
    record.close()


def _end(_arguments: Namespace) -> int:
    from sandbox.cli.hook_session import HookSession

    call = _call()
    HookSession.of(call, _project(call)[0]).end()
    return 0


def _address(url: str) -> str:
    """The host and port of a URL. Raises SandboxError if that is not one host."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        raise SandboxError("{url!r} is not a URL", url=url) from None
    if not parts.hostname:
        raise SandboxError("{url!r} is not a URL", url=url)
    return f"[{parts.hostname}]:{port}" if ":" in parts.hostname else f"{parts.hostname}:{port}"


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
        # A command may contain secrets: only its first word is recorded.
        target=paths[0] if paths else (str(given.get("command", "")).split() or [tool])[0],
        result="blocked",
        policy=decision.rule,
        reason=decision.reason,
        sync=True,
    )
    record.close()
