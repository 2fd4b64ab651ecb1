"""Creating, finding and ending sandboxes: what the command line, JSON-RPC and other servers have in common."""

from __future__ import annotations

import os
import sys

from sandbox.config.home import home
from sandbox.errors import ConfigError, SandboxClosed, SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from sandbox.audit.record import Record
    from sandbox.config.layers import Resolved, Widening
    from sandbox.config.model import Config
    from sandbox.engines.base import Started
    from sandbox.sandbox import Sandbox

    Tell = Callable[[Widening], object]


SRT_PATIENCE = "1h"  # srt waits for its callback without a limit


def configuration(said: Mapping[str, Any], *, project: str | None = None, config_file: str | None = None) -> Resolved:
    """What the user's file, `config_file`, the project's files and `said` configure together. Raises ConfigError.

    `project` is where the project's files are; by default the `filesystem.root` of `said`, or the current directory.
    """
    from sandbox.config.layers import resolve

    root = _root(said)
    if project is None and root != "." and not root.startswith(("/", "~")):
        # Relative to the current directory; the layers would take it as relative to the project, which it names.
        root = f"{os.getcwd()}/{root}"
        said = merged(said, {"filesystem": {"root": root}})
    return resolve(said, project=project or root, config_file=config_file)


def srt_config(
    settings: object, *, strict: bool = False, asking: bool = False, tell: Callable[[str], None] | None = None
) -> Config:
    """Settings of Anthropic's sandbox-runtime as our configuration. Raises ConfigError with the setting's own name.

    `strict` closes the home, as `"strict": true` in the settings does. `asking` says that somebody answers questions
    about hosts that are not listed, unless the settings forbid that. `tell` is called with what a person should know.
    """
    from sandbox.config.dialects.srt import translate
    from sandbox.config.model import Config

    if not isinstance(settings, dict):
        raise ConfigError("must be a mapping")
    translated = translate(settings, strict=strict)
    try:
        config = Config.read(translated.data)
        if translated.masked:
            from sandbox.network.credentials.masks import put_in

            put_in(config, translated.masked, tell or (lambda line: None))
        network = settings.get("network")
        if asking and not (isinstance(network, dict) and network.get("strictAllowlist")):
            config.network = config.network.changed({"ask": True, "ask_timeout": SRT_PATIENCE})
        if config.network.allowed_hosts or config.network.denied_hosts:
            from sandbox.policy.network import NetworkPolicy

            NetworkPolicy(config.network)
        return config
    except ConfigError as problem:
        path = next((known for ours, known in translated.spelled.items() if problem.path.startswith(ours)), None)
        raise ConfigError(problem.problem, path=path or problem.path) from None


def create(
    resolved: Resolved,
    *,
    config: Config | None = None,
    hooks: object | None = None,
    command: Sequence[str] | None = None,
    agent: str | None = None,
    tell: Tell,
) -> Sandbox:
    """Starts a sandbox with the configuration of the layers, or with `config`, which was made from it.

    What the project's files asked for and did not get is put on the record, and `tell` is called with each. `agent` is
    the name of the agent in the record. Raises what `Sandbox` raises.
    """
    asked = config or resolved.config
    launcher = _launch(asked)
    from sandbox.sandbox import with_launcher  # the launcher works while this is loaded

    sandbox = with_launcher(launcher, asked, hooks=hooks, command=command)
    try:
        if agent is not None:
            sandbox.record.agent = agent
        record_ignored(resolved, sandbox.record)
        for ignored in resolved.warnings:
            tell(ignored)
    except BaseException:
        sandbox.close()
        raise
    return sandbox


def _launch(config: Config) -> Started | None:
    """Starts the launcher before anything else, if it can wait for its plan. What fails here fails again in `Sandbox`,
    which puts it on the record."""
    from sandbox.engines.choose import choose

    try:
        engine = choose(config)
        # An image may have to be downloaded first, which can take minutes.
        return engine.start() if engine.can.waits and config.image is None else None
    except (SandboxError, OSError):
        return None


def record_ignored(resolved: Resolved, record: Record) -> None:
    """Puts on the record what the project's files asked for and did not get."""
    for ignored in resolved.warnings:
        record.write(
            "policy_decision",
            str(ignored),
            severity="warn",
            operation="configure",
            target=ignored.path,
            result="blocked",
            policy="project-only-tightens",
            reason=ignored.reason,
            sync=True,
        )


def pull_kill_switch(*, by: str, reason: str = "", close_own: Callable[[], object] | None = None) -> list[str]:
    """Ends every sandbox of this user and lets none start, and records that. Returns the ids of those that it ended.

    `close_own` ends those of this process. Raises SandboxError when one cannot be ended; the switch stays pulled.
    """
    from sandbox.registry.kill_switch import pull

    told = [f"pulled by {by}"]
    try:  # nothing comes before it: whatever else fails, the sandboxes end
        ended = pull(home(), by=by, reason=reason, close_own=close_own)
        told.append(f"{len(ended)} sandboxes ended")
    finally:
        _record_switch(told, reason)
    return ended


def release_kill_switch(*, by: str) -> bool:
    """Lets sandboxes start again, and records that. Returns whether the switch was pulled."""
    from sandbox.registry.kill_switch import release

    if not release(home()):
        return False
    _record_switch([f"released by {by}"])
    return True


def _record_switch(told: Sequence[str], reason: str = "") -> None:
    """Puts it on the record, which only the user's own file configures. Says so if that is impossible."""
    from sandbox.audit.record import Record
    from sandbox.config.home import record_directory
    from sandbox.config.layers import users_config
    from sandbox.config.model import Config

    try:
        config = users_config()
    except (SandboxError, OSError):
        config = Config()
    try:
        record = Record(record_directory(config))
        try:
            for index, one in enumerate(told):
                why = reason or None if index == 0 else None
                record.write("security_kill_switch", one, severity="critical", reason=why, sync=True)
        finally:
            record.close()
    except (SandboxError, OSError) as problem:
        from sandbox.i18n import _

        print(_("the kill switch could not be recorded: {problem}").format(problem=_.text(problem)), file=sys.stderr)


def why_closed(sandbox: Sandbox, problem: SandboxClosed) -> SandboxClosed:
    """The error to report for a sandbox that ended while in use: with the reason, if nobody closed it."""
    if not sandbox.end_reason:
        return problem
    return SandboxClosed("the sandbox has ended: {reason}", reason=sandbox.end_reason)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two layers of settings as one: sections are merged; everything else, lists too, is replaced."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def _root(said: Mapping[str, Any]) -> str:
    filesystem = said.get("filesystem")
    root = filesystem.get("root") if isinstance(filesystem, dict) else None
    return root if isinstance(root, str) else "."
