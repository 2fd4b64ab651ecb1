"""`sandbox why`: explains whether something is allowed, by which rule, from which layer, and how to change it."""

from __future__ import annotations

import os
from shlex import quote

from sandbox.cli.output import print_json, shown
from sandbox.config.layers import Resolved, resolve
from sandbox.config.modes import without_walls
from sandbox.errors import Message, SandboxError, message_of
from sandbox.i18n import _
from sandbox.policy.decision import Decision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from sandbox.config.model import Config
    from sandbox.policy.files import FileGuard

# Rule -> the setting that decides, and the setting to change for another decision.
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
HOST_SCRATCH = Message("The sandbox has its own directory there, without the host's files")

# Lists in which another entry allows more.
GIVES = ("filesystem.allowed_patterns", "filesystem.allow_read", "filesystem.allow_write", "environment.allow",
         "network.allowed_hosts", "tools.allowed")  # fmt: skip

# The option of `sandbox run` that adds to a setting, for one run.
ONE_RUN = {"network.allowed_hosts": "--allow-host", "filesystem.allow_read": "--ro", "filesystem.allow_write": "--rw"}


def add(parser: ArgumentParser) -> None:
    question = parser.add_mutually_exclusive_group(required=True)
    question.add_argument("--path", metavar="P", help=_("may the sandbox read this file (with --write: change it)?"))
    question.add_argument("--host", metavar="H[:PORT]", help=_("may the sandbox connect to this host?"))
    question.add_argument("--env", metavar="NAME", help=_("does the sandbox get this variable?"))
    question.add_argument("--tool", metavar="TOOL", help=_("may an agent call this tool, such as 'Bash(git push)'?"))
    parser.add_argument("--write", action="store_true", help=_("with --path: ask about changing the file"))
    parser.add_argument("--agent", metavar="NAME", help=_("with --tool: use this agent's rules"))
    parser.add_argument("--profile", metavar="NAME", help=_("ask about a run with this profile"))
    parser.add_argument("--network", metavar="PRESET", help=_("network preset: closed, registries or open"))
    parser.add_argument("--config", metavar="FILE", help=_("read this configuration file"))
    parser.add_argument("--json", action="store_true", help=_("print JSON"))


def run(arguments: Namespace) -> int:
    resolved = _resolved(arguments)
    asked, decision = decide(arguments, resolved)
    rule = decision.rule.partition(":")[0]
    setting, change = SETTINGS.get(rule, (rule, rule) if "." in rule else ("", ""))
    if arguments.write and rule == "outside-project-root":
        change = "filesystem.allow_write"
    origin = str(resolved.origin(setting)) if setting else "built-in"
    if setting == "network.allowed_hosts" and decision.rule.partition(": ")[2] in resolved.profile_hosts:
        origin = f"profile ({resolved.profile})"
    asked_about = arguments.host is not None and not decision and _asks(resolved, asked)
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
                **({"asks": asked_about} if arguments.host is not None else {}),
            }
        )
    else:
        _explain(asked, decision, setting, origin, asked_about)
        if not decision:
            print(_("  change   {how}").format(how=shown(how)))
            if change in ONE_RUN:
                print(_("  or       {option}, for one run").format(option=shown(f"{ONE_RUN[change]} {quote(asked)}")))
    return 0 if decision else 1


def _explain(asked: str, decision: Decision, setting: str, origin: str, asked_about: bool) -> None:
    verdict = _("allowed") if decision else _("blocked")
    print(f"{shown(asked)}: {verdict}")
    print(_("  because  {reason}").format(reason=shown(_.text(decision.reason))))
    print(_("  rule     {rule}").format(rule=shown(decision.rule)))
    print(_("  from     {setting} {origin}").format(setting=setting, origin=shown(origin)))
    if asked_about:
        print(_("  asked    network.ask is set: you are asked when a program connects"))


def _resolved(arguments: Namespace) -> Resolved:
    flags = {} if arguments.network is None else {"network": {"preset": arguments.network}}
    if arguments.profile is None:
        return resolve(flags, project=".", config_file=arguments.config)
    from sandbox.profiles.find import load
    from sandbox.profiles.prepare import configured

    return configured(arguments.profile, load(arguments.profile), flags, project=".", config_file=arguments.config)


def decide(arguments: Namespace, resolved: Resolved) -> tuple[str, Decision]:
    """The question as text, and the decision by the same rules that the sandbox and the gate use."""
    config = resolved.config
    if arguments.path is not None:
        return arguments.path, path_decision(resolved, arguments.path, "write" if arguments.write else "read")
    if arguments.env is not None:
        from sandbox.policy.environment import EnvFilter

        value = os.environ.get(arguments.env, "")
        return arguments.env, EnvFilter.of(config, os.environ).check(arguments.env, value)
    if arguments.tool is not None:
        return arguments.tool, tool_decision(resolved, arguments.tool, arguments.agent)
    return arguments.host, host_decision(resolved, arguments.host)


def path_decision(resolved: Resolved, path: str, operation: str) -> Decision:
    """An existing file is checked by what a sandbox would hide and freeze, another by its name."""
    from sandbox.layout.paths import frozen_project
    from sandbox.policy.files import FileGuard

    filesystem = resolved.config.filesystem
    if without_walls(resolved.config):
        return Decision(True, "mode", "Nothing is isolated: the mode is off")
    if operation == "write" and (acted_on := frozen_project(filesystem)) is not None:
        return Decision(False, "protected-file", "Programs on the host act on it: {pattern}", pattern=acted_on)
    guard = FileGuard(filesystem, home=os.path.expanduser("~"))
    place = os.path.join(filesystem.root, os.path.expanduser(path))
    real = os.path.realpath(place)
    if os.path.islink(place):  # what it leads to helps nobody who cannot see the link
        seen = _by_the_walls(resolved.config, guard, os.path.realpath(os.path.dirname(place)), "read")
        if not seen:
            return seen
    if os.path.lexists(real):
        return _by_the_walls(resolved.config, guard, real, operation)
    decision = guard.check(path, operation)
    return guard.check(real, operation) if decision and real != os.path.normpath(place) else decision


def _by_the_walls(config: Config, guard: FileGuard, real: str, operation: str) -> Decision:
    """Uses the same search as a sandbox, which includes links, hard links and directories above."""
    from sandbox.guards.freezing import freeze_repositories
    from sandbox.guards.scan import hidden_now
    from sandbox.guards.search import denied
    from sandbox.policy.files import narrowest

    tops = [os.path.realpath(one) for one in (guard.root, *guard.allow_read, *guard.allow_write)]
    decision = guard.place(real, operation)
    if decision.rule == "own-scratch" and operation == "read" and narrowest(real, SCRATCH) not in (None, real):
        return Decision(False, "own-scratch", HOST_SCRATCH)
    if decision.rule in ("system", "own-scratch", "outside-project-root"):
        elsewhere = denied(config.filesystem, list(guard.system), tops) if decision.rule == "system" else []
        by = narrowest(real, [mask.path for mask in elsewhere])
        return (
            decision
            if by is None
            else Decision(False, "deny-read", "Denied by filesystem.deny_read: {pattern}", pattern=by)
        )
    covers = hidden_now(config, tops)
    mask = covers.masks.get(narrowest(real, list(covers.masks)) or "")
    if mask is not None and mask.rule == "deny_read":
        return Decision(False, "deny-read", "Denied by filesystem.deny_read: {pattern}", pattern=mask.path)
    if mask is not None:
        return Decision(False, "sensitive-file-pattern", "Matches blocked pattern: {pattern}", pattern=mask.rule)
    if operation == "write":
        freeze_repositories(covers, tops, None, {})
    frozen = narrowest(real, list(covers.frozen)) if operation == "write" else None
    if frozen is not None:
        refused = guard.check(frozen, "write")  # the rule's own reason, if the name gives one
        named = refused.rule in ("protected-file", "deny-write")
        return (
            refused
            if named
            else Decision(False, "protected-file", "Programs on the host act on it: {pattern}", pattern=frozen)
        )
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
    """Uses the gate's own rules."""
    from sandbox.policy.network import NetworkPolicy

    return NetworkPolicy(resolved.config.network).connect(*_host_and_port(asked))


def _host_and_port(asked: str) -> tuple[str, int]:
    from sandbox.policy.hosts import InvalidHost, canonical_host

    host, colon, port = asked.rpartition(":")
    if not colon or not port.isdecimal() or (":" in host and not host.endswith("]")):
        host, port = asked, "443"
    try:
        return canonical_host(host), int(port)
    except InvalidHost as problem:
        raise SandboxError(message_of(problem)) from None


def _asks(resolved: Resolved, asked: str) -> bool:
    """Whether the owner would be asked about a host that is refused."""
    from sandbox.policy.network import NetworkPolicy

    network = resolved.config.network
    return network.ask and NetworkPolicy(network).askable(*_host_and_port(asked))


def _how(change: str, asked: str) -> str:
    if not change:
        return _("cannot be changed")
    if change in GIVES:
        return f"sandbox config --global add {change} {quote(asked)}"
    return f"sandbox config --global set {change} …"
