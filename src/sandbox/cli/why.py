"""`sandbox why`: what would be decided, by which rule, from which layer, and how to change that."""

from __future__ import annotations

import os

from sandbox.cli.output import print_json, shown
from sandbox.config.layers import Resolved, resolve
from sandbox.config.modes import without_walls
from sandbox.errors import SandboxError
from sandbox.i18n import _
from sandbox.policy.decision import Decision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from sandbox.config.model import Filesystem
    from sandbox.policy.files import FileGuard

# Rule -> the setting that decided, and the one to change for another answer.
SETTINGS = {
    "sensitive-file-pattern": ("filesystem.blocked_patterns", "filesystem.allowed_patterns"),
    "outside-project-root": ("filesystem.root", "filesystem.allow_read"),
    "deny-read": ("filesystem.deny_read", "filesystem.allow_read"),
    "deny-write": ("filesystem.deny_write", "filesystem.deny_write"),
    "read-only-root": ("filesystem.read_only", "filesystem.read_only"),
    "read-only-path": ("filesystem.allow_read", "filesystem.allow_write"),
    "allow-read": ("filesystem.allow_read", ""),
    "allow-write": ("filesystem.allow_write", ""),
    "within-project-root": ("filesystem.root", ""),
    "own-scratch": ("filesystem.allow_read", "filesystem.allow_read"),
    "environment.block": ("environment.block", "environment.block"),
    "environment.allow": ("environment.allow", ""),
    "environment.filter_secrets": ("environment.filter_secrets", "environment.allow"),
    "host-pointer": ("environment.allow", "environment.allow"),
    "launch-hook": ("environment.allow", "environment.allow"),
    "tools.allowed": ("tools.allowed", "tools.allowed"),
    "tools.disallowed": ("tools.disallowed", "tools.disallowed"),
    "tools.shell": ("tools.allowed", "tools.allowed"),
}

SCRATCH = ("/tmp", "/var/tmp", "/run", "/dev/shm")
HOST_SCRATCH = "The sandbox has a directory of its own there; the host's files are not in it"

# Lists that an entry more opens.
GIVES = ("filesystem.allowed_patterns", "filesystem.allow_read", "filesystem.allow_write", "environment.allow",
         "network.allowed_hosts", "tools.allowed")  # fmt: skip


def add(parser: ArgumentParser) -> None:
    question = parser.add_mutually_exclusive_group(required=True)
    question.add_argument("--path", metavar="P", help=_("may this file be read (with --write: changed)?"))
    question.add_argument("--host", metavar="H[:PORT]", help=_("may this host be talked to?"))
    question.add_argument("--env", metavar="NAME", help=_("is this variable passed?"))
    question.add_argument("--tool", metavar="TOOL", help=_("may this tool be called, such as 'Bash(git push)'?"))
    parser.add_argument("--write", action="store_true", help=_("with --path: changing it"))
    parser.add_argument("--agent", metavar="NAME", help=_("with --tool: as this agent"))
    parser.add_argument("--config", metavar="FILE", help=_("a configuration file"))
    parser.add_argument("--json", action="store_true", help=_("print JSON"))


def run(arguments: Namespace) -> int:
    resolved = resolve({}, project=".", config_file=arguments.config)
    asked, decision = decide(arguments, resolved)
    rule = decision.rule.partition(":")[0]
    setting, change = SETTINGS.get(rule, (rule, rule) if "." in rule else ("", ""))
    origin = str(resolved.origin(setting)) if setting else "built-in"
    how = _how(change, asked)
    if arguments.agent and not decision and tool_decision(resolved, asked, None):
        from sandbox.config.agents import find

        # The configuration would allow it.
        setting, change = "allowed-tools", ""
        origin = how = find(".", arguments.agent).file
    if arguments.json:
        print_json(
            {
                "asked": asked,
                "allowed": decision.allowed,
                "rule": decision.rule,
                "reason": decision.reason,
                "setting": setting or None,
                "origin": origin,
                "change": change or None,
            }
        )
    else:
        verdict = _("allowed") if decision else _("blocked")
        print(f"{shown(asked)}: {verdict}")
        print(_("  because  {reason}").format(reason=shown(_.said(decision.reason))))
        print(_("  rule     {rule}").format(rule=shown(decision.rule)))
        print(_("  from     {setting} {origin}").format(setting=setting, origin=shown(origin)))
        if not decision:
            print(_("  change   {how}").format(how=shown(how)))
    return 0 if decision else 1


def decide(arguments: Namespace, resolved: Resolved) -> tuple[str, Decision]:
    """The question in words, and its answer by the same rules that the walls and the gate are built from."""
    config = resolved.config
    if arguments.path is not None:
        return arguments.path, path_decision(resolved, arguments.path, "write" if arguments.write else "read")
    if arguments.env is not None:
        from sandbox.policy.environment import EnvFilter

        value = os.environ.get(arguments.env, "")
        return arguments.env, EnvFilter(config.environment).check(arguments.env, value)
    if arguments.tool is not None:
        return arguments.tool, tool_decision(resolved, arguments.tool, arguments.agent)
    return arguments.host, host_decision(resolved, arguments.host)


def path_decision(resolved: Resolved, path: str, operation: str) -> Decision:
    """What exists is judged by what the walls would cover and freeze, what does not by its name."""
    from sandbox.policy.files import FileGuard

    filesystem = resolved.config.filesystem
    if without_walls(resolved.config):
        return Decision(True, "mode", "There are no walls: the mode is off")
    guard = FileGuard(filesystem, home=os.path.expanduser("~"))
    place = os.path.join(filesystem.root, os.path.expanduser(path))
    real = os.path.realpath(place)
    if os.path.lexists(real):
        return _by_the_walls(filesystem, guard, real, operation)
    decision = guard.check(path, operation)
    return guard.check(real, operation) if decision and real != os.path.normpath(place) else decision


def _by_the_walls(filesystem: Filesystem, guard: FileGuard, real: str, operation: str) -> Decision:
    """By the search that the walls are built from: links, hard links and directories above are in its answer."""
    from sandbox.config.home import home
    from sandbox.guards.search import denied, search
    from sandbox.policy.files import narrowest

    tops = [os.path.realpath(one) for one in (guard.root, *guard.allow_read, *guard.allow_write)]
    decision = guard.place(real, operation)
    if decision.rule == "own-scratch" and operation == "read" and narrowest(real, SCRATCH) not in (None, real):
        return Decision(False, "own-scratch", HOST_SCRATCH)
    if decision.rule in ("system", "own-scratch", "outside-project-root"):
        elsewhere = denied(filesystem, list(guard.system), tops) if decision.rule == "system" else []
        by = narrowest(real, [mask.path for mask in elsewhere])
        return decision if by is None else Decision(False, "deny-read", f"Denied by filesystem.deny_read: {by}")
    covers = search(filesystem, [one for one in tops if os.path.lexists(one)], [os.path.realpath(home())]).found
    mask = covers.masks.get(narrowest(real, list(covers.masks)) or "")
    if mask is not None and mask.rule == "deny_read":
        return Decision(False, "deny-read", f"Denied by filesystem.deny_read: {mask.path}")
    if mask is not None:
        return Decision(False, "sensitive-file-pattern", f"Matches blocked pattern: {mask.rule}")
    frozen = narrowest(real, list(covers.frozen)) if operation == "write" else None
    if frozen is not None:
        refused = guard.check(frozen, "write")  # the rule in words, where the name says it
        named = refused.rule in ("protected-file", "deny-write")
        return refused if named else Decision(False, "protected-file", f"Programs on the host act on it: {frozen}")
    return decision


def tool_decision(resolved: Resolved, text: str, agent_name: str | None) -> Decision:
    """`Bash(git push)`, `Write(docs/x.md)`, `WebFetch(https://…)` or a bare name."""
    from sandbox.cli.agent import guard
    from sandbox.config.agents import find
    from sandbox.policy.tools import SHELL, ToolGuard

    name, parenthesis, rest = text.partition("(")
    argument = rest.removesuffix(")") if parenthesis else ""
    key = "command" if name in SHELL else "url" if name.startswith("Web") else "file_path"
    given = {key: argument} if argument else {}
    config = resolved.config
    if agent_name is not None:
        return guard(find(".", agent_name), config).check(name, given)
    return ToolGuard(config.tools, root=config.filesystem.root).check(name, given)


def host_decision(resolved: Resolved, asked: str) -> Decision:
    """By the gate's own rules."""
    from sandbox.policy.hosts import InvalidHost, canonical_host
    from sandbox.policy.network import NetworkPolicy

    host, colon, port = asked.rpartition(":")
    if not colon or not port.isdecimal() or (":" in host and not host.endswith("]")):
        host, port = asked, "443"
    try:
        return NetworkPolicy(resolved.config.network).connect(canonical_host(host), int(port))
    except InvalidHost as problem:
        raise SandboxError(str(problem)) from None


def _how(change: str, asked: str) -> str:
    import shlex

    if not change:
        return _("nothing: this holds always")
    if change in GIVES:
        return f"sandbox config --global add {change} {shlex.quote(asked)}"
    return f"sandbox config --global set {change} …"
