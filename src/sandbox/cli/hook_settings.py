"""Claude Code's settings: where the hook is installed, and their rules about commands.

The installed command runs the same program in every project and directory and with every PATH: an absolute interpreter,
isolated (`-I`: no current directory, no PYTHON variables, no user packages). Claude Code takes only exit status 2 as
"blocked" and goes on after any other, so everything but success becomes 2, even a missing interpreter.
"""

from __future__ import annotations

import json
import os
import shlex
import sys

from sandbox.cli.output import shown
from sandbox.config.atomic_write import write_whole
from sandbox.config.files import read_text
from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MANAGED = "/etc/claude-code/managed-settings.json"
TIMEOUT = 60  # seconds; the hook itself gives up and blocks before that
# Event of Claude Code -> our action and the tools it is for.
EVENTS = {
    "PreToolUse": ("pre-tool-use", "*"),
    "PostToolUse": ("post-tool-use", "Bash|Monitor"),
    "PostToolUseFailure": ("post-tool-use", "Bash|Monitor"),
    "SessionEnd": ("session-end", None),
}


def settings_file(everywhere: bool) -> str:
    return os.path.expanduser("~/.claude/settings.json") if everywhere else os.path.abspath(".claude/settings.json")


def claude_settings(project: str) -> list[dict[str, Any]]:
    """Every existing settings file that applies to `project`. Raises SandboxError."""
    user = os.path.expanduser("~/.claude/settings.json")
    names = (MANAGED, user, f"{project}/.claude/settings.json", f"{project}/.claude/settings.local.json")
    return [read(name) for name in names if os.path.exists(name)]


def read(file: str, *, links: bool = True) -> dict[str, Any]:
    """One settings file, {} if there is none. `links`: whether it and its directory may be symbolic links. Raises
    SandboxError."""
    try:
        settings = json.loads(text) if (text := read_text(file, links=links)) is not None else {}
    except (ValueError, RecursionError) as problem:
        raise SandboxError("{file} is not valid JSON: {problem}", file=file, problem=problem) from None
    if not isinstance(settings, dict):
        raise SandboxError("{file} must contain a JSON object", file=file)
    return settings


def shell_rules(project: str, kind: str) -> list[str]:
    """Claude Code's own rules about commands (`permissions.deny`, `permissions.ask`).

    Claude Code compares them with the hook's answer, which none of them would match, so the hook enforces them.
    """
    found: list[str] = []
    for settings in claude_settings(project):
        permissions = settings.get("permissions")
        listed = permissions.get(kind) if isinstance(permissions, dict) else None
        found += [one for one in listed or () if isinstance(one, str) and one.partition("(")[0] == "Bash"]
    return found


# -- the program


def program() -> list[str]:
    """The words that start this `sandbox`, from any directory."""
    interpreter = os.path.abspath(sys.executable)
    if sys.flags.isolated and sys.orig_argv[1:4] == ["-I", "-m", "sandbox"]:
        return [interpreter, "-I", "-m", "sandbox"]  # as we were started ourselves
    if _isolated_works(interpreter):
        return [interpreter, "-I", "-m", "sandbox"]
    import sandbox

    place = os.path.dirname(os.path.dirname(os.path.abspath(sandbox.__file__)))
    code = f"import site; site.addsitedir({place!r}); from sandbox.cli.main import main; main()"
    return [interpreter, "-I", "-c", code]


def _isolated_works(interpreter: str) -> bool:
    """Whether an isolated interpreter finds the package. It does not if only the user has it installed."""
    import subprocess

    import sandbox

    code = "import sandbox; print(sandbox.__file__)"
    done = subprocess.run([interpreter, "-I", "-c", code], cwd="/", capture_output=True, text=True, check=False)
    return done.stdout.strip() == sandbox.__file__


def written_by_tenants(tops: Sequence[str]) -> str | None:
    """The part of our own program that is in one of `tops`, where a tenant could change it, or None."""
    import sandbox

    parts = (
        os.path.abspath(sys.executable),
        os.path.realpath(sys.executable),
        sys.prefix,
        os.path.abspath(sandbox.__file__),
    )
    for part in (*parts, *map(os.path.realpath, parts)):
        for top in tops:
            if f"{part}/".startswith(os.path.realpath(top).rstrip("/") + "/"):
                return part
    return None


# -- writing


def install(everywhere: bool, options: Sequence[str]) -> int:
    """Installs the hook and removes older versions of it. Raises SandboxError."""
    own = written_by_tenants([os.getcwd()])
    if own is not None:
        raise SandboxError(
            "{own} is in this project, where the agent's commands can change it; install sandbox "
            "outside the project (with pipx, for example) and run `sandbox hook install` from "
            "there",
            own=own,
        )
    file = settings_file(everywhere)
    before = _read_to_change(everywhere)
    after = _without_ours(before)
    hooks = after.setdefault("hooks", {})
    started = shlex.join(program())
    for event, (action, matcher) in EVENTS.items():
        words = shlex.join([action, *(options if action == "pre-tool-use" else ())])
        one: dict[str, Any] = {"matcher": matcher} if matcher else {}
        command = f"{started} hook {words}" + (" || exit 2" if event != "SessionEnd" else "")
        one["hooks"] = [{"type": "command", "command": command, "timeout": TIMEOUT}]
        hooks.setdefault(event, []).append(one)
    if after == before:
        print(_("the hook is already in {file}").format(file=file))
        return 0
    _save(file, after)
    print(_("added the hook to {file}").format(file=file))
    if "--judge-only" in options:
        print(
            _(
                "with --judge-only the hook only checks the text of commands, which is advice, not "
                "isolation; without it, commands run in a sandbox"
            )
        )
    return 0


def uninstall(everywhere: bool) -> int:
    """Removes every version of the hook."""
    file = settings_file(everywhere)
    before = _read_to_change(everywhere)
    after = _without_ours(before)
    if after == before:
        print(_("there is no hook in {file}").format(file=file))
        return 0
    _save(file, after)
    print(_("removed the hook from {file}").format(file=file))
    return 0


def status() -> int:
    """Prints where the hook is, and whether it is an older version. Exit status 1 if no current one is installed."""
    well = False
    for everywhere in (False, True):
        file = settings_file(everywhere)
        found = [
            command for event, command in _ours(read(file)) if event == "PreToolUse"
        ]
        for command in found:
            sound = command.endswith("|| exit 2") and command.startswith(("/", "'/"))
            well = well or sound
            print(f"{shown(file)}: {shown(command)}")
            if not sound:
                print(_("  an older version, which allows calls when it fails; run `sandbox hook install` again"))
    if not well:
        print(_("no hook is installed here"), file=sys.stderr)
    return 0 if well else 1


def _read_to_change(everywhere: bool) -> dict[str, Any]:
    """The settings that are about to be written again. A tenant may have made a project's a link: to a file of the
    person's, whose content would then be in the project, or to a directory in which we would write."""
    return read(settings_file(everywhere), links=everywhere)


def _save(file: str, settings: dict[str, Any]) -> None:
    os.makedirs(os.path.dirname(file), exist_ok=True)
    if file == settings_file(everywhere=True):
        file = os.path.realpath(file)  # the user's own link stays one; a project's could lead anywhere
    mode = os.lstat(file).st_mode & 0o666 if os.path.isfile(file) and not os.path.islink(file) else 0o644
    write_whole(file, json.dumps(settings, indent=2, ensure_ascii=False) + "\n", mode=mode)


def _is_ours(command: object) -> bool:
    return isinstance(command, str) and any(
        "sandbox" in before and marked
        for action, _matcher in EVENTS.values()
        for before, marked, _after in [command.partition(f" hook {action}")]
    )


def _ours(settings: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (event, hook["command"])
        for event, groups in (settings.get("hooks") or {}).items()
        for group in groups or ()
        for hook in group.get("hooks") or ()
        if _is_ours(hook.get("command"))
    ]


def _without_ours(settings: dict[str, Any]) -> dict[str, Any]:
    """A copy without any version of our hook, and without entries that become empty. Raises SandboxError."""
    copy: dict[str, Any] = json.loads(json.dumps(settings))
    hooks = copy.get("hooks", {})
    try:
        for event in list(hooks):
            if not any(where == event for where, _command in _ours(copy)):
                continue
            for group in hooks[event]:
                group["hooks"] = [one for one in group["hooks"] if not _is_ours(one.get("command"))]
            hooks[event] = [group for group in hooks[event] if group["hooks"]]
            if not hooks[event]:
                del hooks[event]
    except (AttributeError, TypeError, KeyError):
        raise SandboxError("the settings file's hooks are not in Claude Code's format") from None
    if not hooks:
        copy.pop("hooks", None)
    return copy
