"""Claude Agent SDK: agents whose every tool call happens in a sandbox. See docs/integrations/claude-agent-sdk.md.

The SDK talks to Claude Code over its standard streams. Here Claude Code itself runs in a sandbox, with the profile
`claude`, so that none of its tools, and no server or hook that a project's files make it start, is outside. What is
yours stays outside: your callbacks, your in-process tools, your key.
"""

from __future__ import annotations

import copy
import dataclasses
import errno
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

from sandbox.config.dialects.srt import TABLE
from sandbox.config.dialects.table import translate
from sandbox.config.layers import Resolved, resolve
from sandbox.config.model import Tools
from sandbox.policy.tools import ToolGuard
from sandbox.project_scan.reading import Project
from sandbox.sandbox import open_record

#: What SandboxSettings may say besides `network`, and what it means behind walls that have no exceptions.
NO_MEANING = {
    "enabled": "they always are",
    "autoAllowBashIfSandboxed": "permission_mode and allowed_tools say what is asked about",
    "allowUnsandboxedCommands": "no command runs outside",
    "ignoreViolations": "everything is on the record",
    "enableWeakerNestedSandbox": "the walls are whole or not built",
}


@contextmanager
def behind_walls(
    options: ClaudeAgentOptions | None = None, config: Mapping[str, Any] | None = None
) -> Iterator[ClaudeAgentOptions]:
    """`with behind_walls(options) as walled: query(prompt=..., options=walled)`, for any number of queries.

    Each query or client has a sandbox of its own, around `options.cwd`, which ends with it. `config` is a sandbox's
    configuration; your own settings and the project's apply, too, as for `sandbox claude`. Raises ConfigError, and
    ValueError for options that would lead outside.
    """
    given = options if options is not None else ClaudeAgentOptions()
    project = os.path.abspath(given.cwd if given.cwd is not None else os.getcwd())
    with tempfile.TemporaryDirectory(prefix="sandbox-claude-") as directory:
        file = os.path.join(directory, "config.yaml")
        with open(file, "w", encoding="utf-8") as opened:
            json.dump(_settings(given, project, config or {}), opened)  # JSON is YAML, too
        resolved = resolve({}, project=project, config_file=file)
        hooks = {event: list(matchers) for event, matchers in (given.hooks or {}).items()}
        # "block" only if there are rules: with it, the SDK refuses a Claude Code that is too old to fail closed.
        ruled = resolved.config.tools != Tools()
        judge = HookMatcher(hooks=[ToolHook(resolved)], on_failure="block" if ruled else None)
        hooks["PreToolUse"] = [judge, *hooks.get("PreToolUse", [])]
        yield dataclasses.replace(
            given,
            cli_path=_launcher(directory, file, _claude(given)),
            cwd=project,
            hooks=hooks,
            sandbox=None,
            settings=_inline(given.settings, project),
        )


class ToolHook:
    """A hook that runs before every tool call: the configuration's `tools` decides, and the call is recorded."""

    def __init__(self, resolved: Resolved) -> None:
        self._config = resolved.config
        self._guard = ToolGuard(resolved.config.tools, root=resolved.config.filesystem.root)

    async def __call__(self, call: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Refuses what a rule refuses, has no opinion on the rest. If there are rules, an exception blocks the call."""
        tool, given = str(call["tool_name"]), dict(call["tool_input"] or {})
        decision = self._guard.check(tool, given)
        with closing(open_record(self._config, "")) as record:
            record.write(
                "policy_decision",
                f"{tool} was {'called' if decision else 'blocked'}",
                severity="info" if decision else "warn",
                agent="claude-agent-sdk",
                operation=f"tool:{tool}",
                result="allowed" if decision else "blocked",
                policy=decision.rule,
                reason=decision.reason,
            )
        if decision:
            return {}
        said = f"sandbox: {decision.reason} (rule: {decision.rule})"
        answer = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": said}
        return {"hookSpecificOutput": answer}


def _settings(options: ClaudeAgentOptions, project: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with what the options say about files and hosts. Raises ConfigError, ValueError."""
    made = copy.deepcopy(dict(config))
    files, network = made.setdefault("filesystem", {}), made.setdefault("network", {})
    for name, value in from_sandbox_settings(options.sandbox or {}).items():
        network[name] = [*network.get(name, []), *value] if isinstance(value, list) else network.get(name, value)
    files.setdefault("root", project)
    writable = [os.path.abspath(os.path.join(project, one)) for one in options.add_dirs]
    files["allow_write"] = [*files.get("allow_write", []), *writable]
    # Freezes the program that runs this if it is in the project: the agent could change what you run next.
    own = [os.path.realpath(one) for one in (sys.prefix, os.path.dirname(os.path.dirname(__file__)))]
    shown = [os.path.realpath(one) for one in (files["root"], *files["allow_write"])]
    inside = [one for one in own if any(f"{one}/".startswith(f"{top.rstrip('/')}/") for top in shown)]
    files["deny_write"] = [*files.get("deny_write", []), *inside]
    return made


def from_sandbox_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The SDK's `SandboxSettings` as our `network`. Raises ConfigError, and ValueError for what would run outside."""
    if settings.get("excludedCommands"):
        raise ValueError("excludedCommands would run outside the sandbox: leave it out")
    unknown = set(settings) - {"network", "excludedCommands", *NO_MEANING}
    if unknown:
        raise ValueError(f"unknown SandboxSettings: {', '.join(sorted(unknown))}")
    said = {name: value for name, value in (settings.get("network") or {}).items() if name != "allowManagedDomainsOnly"}
    network = dict(translate({"network": said}, TABLE).data.get("network", {})) if said else {}
    socks = network.pop("socks_proxy", None)
    if socks is not None:
        network.setdefault("upstream_proxy", socks)
    return network


def _claude(options: ClaudeAgentOptions) -> str:
    """Claude Code's own program: the one that was named, or the one that the SDK brings. Raises ValueError."""
    bundled = os.path.join(os.path.dirname(claude_agent_sdk.__file__), "_bundled", "claude")
    path = os.path.abspath(options.cli_path) if options.cli_path is not None else bundled
    if os.path.basename(path) != "claude" or not os.access(path, os.X_OK):
        raise ValueError(f"{path} is not Claude Code's program; name it with cli_path")
    return path


def _launcher(directory: str, config: str, claude: str) -> str:
    """Writes a program for the SDK to start instead. `-P`: it imports nothing from the current directory."""
    words = [sys.executable, "-P", "-m", "sandbox", "run", "--config", config, "--profile", "claude", "--", "claude"]
    path = os.path.join(directory, "claude")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nPATH={shlex.quote(os.path.dirname(claude))}:"$PATH" exec {shlex.join(words)} "$@"\n')
    os.chmod(path, 0o700)
    return path


def _inline(settings: str | None, project: str) -> str | None:
    """Returns settings as text, because your file is not visible inside. Raises OSError."""
    if settings is None or settings.lstrip().startswith("{"):
        return settings
    path = os.path.abspath(os.path.join(project, settings))
    within = os.path.relpath(path, os.path.abspath(project))
    if within.split("/")[0] == "..":
        with open(path, encoding="utf-8") as file:
            return file.read()
    with Project(project) as files:  # tenants write there: a link of theirs must not lead to a file of yours
        if not files.has(within) or files.is_directory(within):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return files.text(within)
