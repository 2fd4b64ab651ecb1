"""`sandbox agent`: run an agent in a sandbox that enforces the tool permissions in its file."""

from __future__ import annotations

import os
import sys

from sandbox.cli.output import print_json, shown, table
from sandbox.config.agents import AgentFile, find, look
from sandbox.config.layers import USER, Resolved, leave_to_the_user, resolve
from sandbox.config.modes import without_walls
from sandbox.errors import ConfigError, Denied, message_of
from sandbox.i18n import _
from sandbox.policy.tools import ToolGuard, project

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from sandbox.config.model import Config, Network
    from sandbox.profiles.prepare import Prepared

# Settings of the network that an agent without network tools keeps: they forbid, or say how an allowed host is reached.
OPENS_NOTHING = (
    "allow_git", "allow_localhost", "ask_timeout", "authority_certificate", "authority_key", "block_private_ips",
    "ca_certificates", "denied_hosts", "denied_reasons", "intercept", "proxy_socket", "proxy_socket_hosts", "refusals",
    "secrets", "strip_response_headers", "upstream_exceptions", "upstream_proxy",
)  # fmt: skip


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox agent list | run NAME [--sandbox | --no-sandbox] [-- arguments]"
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    listing = actions.add_parser("list", help=_("list this project's agents and what they may do"))
    listing.add_argument("--json", action="store_true", help=_("print JSON"))
    running = actions.add_parser("run", help=_("run an agent in a sandbox"))
    running.usage = "sandbox agent run NAME [--sandbox | --no-sandbox] [--config FILE] [-- arguments]"
    _options(running)
    # One argument for all of it: argparse would drop a `--` after the name.
    running.add_argument(
        "words", nargs="...", metavar="NAME", help=_("the agent's name, then arguments for its program")
    )


def _options(parser: ArgumentParser) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--sandbox", action="store_true", help=_("use a sandbox even if the config disables it"))
    either.add_argument(
        "--no-sandbox", action="store_true", help=_("run on the host, if the user's own config allows it")
    )
    parser.add_argument("--profile", metavar="NAME", help=_("run the agent by this profile's program"))
    parser.add_argument("--config", metavar="FILE", help=_("read this configuration file"))


def _named(arguments: Namespace) -> tuple[str, list[str]]:
    """The agent's name and the arguments for its program. Options may follow the name, up to `--`."""
    from argparse import ArgumentParser

    name, *rest = arguments.words or [""]
    at = rest.index("--") if "--" in rest else len(rest)
    parser = ArgumentParser(prog="sandbox agent run", allow_abbrev=False)
    _options(parser)
    parser.parse_args(rest[:at], arguments)
    return name, rest[at + 1 :]


def run(arguments: Namespace) -> int:
    if arguments.action == "list":
        return _list(arguments.json)
    return _run(arguments)


def _list(as_json: bool) -> int:
    resolved = resolve({}, project=".")
    found = look(".")
    rows = []
    for agent in found.agents:
        try:
            read_only, no_network = project(guard(agent, resolved.config))
        except ConfigError as problem:
            found.problems[agent.name] = problem
            continue
        rows.append((agent, read_only, no_network))
    for wrong in found.problems.values():
        print(f"sandbox: {shown(_.text(wrong))}", file=sys.stderr)
    if as_json:
        print_json([_plain(*row) for row in rows])
    elif rows:
        heads = (_("AGENT"), _("PROJECT"), _("NETWORK"), _("DESCRIPTION"))
        print(table((_cells(*row) for row in rows), heads))
    else:
        print(_("no agents in .sandbox/agents or .claude/agents"), file=sys.stderr)
    return 0


def _plain(agent: AgentFile, read_only: bool, no_network: bool) -> dict[str, object]:
    return {
        "name": agent.name,
        "description": agent.description,
        "file": agent.file,
        "allowed_tools": agent.allowed,
        "disallowed_tools": agent.disallowed,
        "read_only": read_only,
        "no_network": no_network,
    }


def _cells(agent: AgentFile, read_only: bool, no_network: bool) -> tuple[str, ...]:
    project = _("read-only") if read_only else _("writable")
    network = _("none") if no_network else _("as configured")
    return agent.name, project, network, agent.description


def guard(agent: AgentFile, config: Config) -> ToolGuard:
    """The agent's tool rules under this config. Raises ConfigError for an invalid pattern."""
    try:
        return ToolGuard(config.tools, root=config.filesystem.root, allowed=agent.allowed, disallowed=agent.disallowed)
    except ValueError as problem:
        raise ConfigError(message_of(problem), file=agent.file) from None


def _run(arguments: Namespace) -> int:
    name, extra = _named(arguments)
    agent = find(".", name)
    resolved = resolve({}, project=".", config_file=arguments.config)
    walls = _walls_wanted(arguments, resolved)
    profile = arguments.profile or resolved.config.agents.profile
    command = _command(agent, resolved.config, extra, walls, profile)
    prepared = None
    if profile is not None and walls:
        prepared = _with_profile(arguments, profile, command)
        resolved, command = prepared.resolved, prepared.command
    config = resolved.config
    if walls:
        project_onto_walls(config, guard(agent, config))
        if prepared is not None:
            from sandbox.profiles.prepare import furnish

            # The program may always reach its own model, and learns which rules apply to this agent.
            config.network.allowed_hosts = [*dict.fromkeys((*config.network.allowed_hosts, *resolved.profile_hosts))]
            furnish(prepared)
    else:
        config.mode = "off"
        leave_to_the_user(resolved)
    config.environment.set = {
        **config.environment.set,
        "SANDBOX_AGENT": agent.name,
        "SANDBOX_AGENT_FILE": os.path.abspath(agent.file),
    }
    why_outside = "" if walls else ("--no-sandbox" if arguments.no_sandbox else "mode off")
    return _run_here(agent, resolved, command, why_outside)


def _run_here(agent: AgentFile, resolved: Resolved, command: list[str], why_outside: str) -> int:
    """Runs the agent to its end. `why_outside`: why it has no walls, for the record; empty when it has."""
    from sandbox.cli.foreground import foreground
    from sandbox.cli.run import tell_ignored
    from sandbox.cli.run_summary import Refusals, tell, tell_notices, to_its_end
    from sandbox.service import create

    config = resolved.config
    sandbox = create(resolved, config=config, agent=agent.name, tell=tell_ignored)
    tell_notices(sandbox)
    if why_outside:
        sandbox.record.write(
            "sandbox_mode_transition",
            f"agent {agent.name} runs on the host ({why_outside})",
            severity="warn",
            sync=True,
        )
    refusals = Refusals(sandbox, resolved.expected)
    result = to_its_end(sandbox, lambda: foreground(sandbox, command))
    return tell(sandbox, result, refusals)


def _walls_wanted(arguments: Namespace, resolved: Resolved) -> bool:
    """Whether to isolate the agent. Raises Denied for a --no-sandbox that the user's own file does not allow."""
    if arguments.no_sandbox:
        allowed = resolved.config.agents.allow_no_sandbox
        # Only the user's own file counts: a --config file may be part of the project.
        if not (allowed and resolved.origin("agents.allow_no_sandbox").layer == USER):
            raise Denied(
                "agents.allow_no_sandbox",
                "--no-sandbox is not allowed; to allow it, run `sandbox config --global set "
                "agents.allow_no_sandbox true`",
            )
        return False
    if arguments.sandbox:
        resolved.config.enabled = True
        resolved.config.mode = "standard" if resolved.config.mode == "off" else resolved.config.mode
        resolved.config.engine = "auto" if resolved.config.engine == "none" else resolved.config.engine
    return not without_walls(resolved.config)


def _with_profile(arguments: Namespace, profile: str, command: list[str]) -> Prepared:
    """The configuration with the profile's layer, with isolation if it was asked for."""
    from sandbox.profiles.prepare import prepare

    flags: dict[str, object] = {}
    if arguments.sandbox:
        flags = {"enabled": True}
        plain = resolve({}, project=".", config_file=arguments.config).config
        flags |= {"mode": "standard"} if plain.mode == "off" else {}
        flags |= {"engine": "auto"} if plain.engine == "none" else {}
    return prepare(profile, command, flags, project=".", config_file=arguments.config)


def _command(agent: AgentFile, config: Config, extra: list[str], walls: bool, profile: str | None) -> list[str]:
    """The program: the agent file's own, or else the user's runner, or the profile's program. On the host, never one
    that the project names."""
    words = (agent.command if walls else []) or config.agents.runner
    if not words and profile is not None:
        from sandbox.profiles.find import load

        words = [load(profile).program]
    if not words:
        raise ConfigError(
            "agent {name!r} has no command; set agents.runner in your own config, for example "
            "`sandbox config --global set agents.runner '[claude, --append-system-prompt, "
            '"{{prompt}}"]\'`',
            name=agent.name,
        )
    filled = {"name": agent.name, "file": os.path.abspath(agent.file)}
    return [_filled(word, filled, agent) for word in words] + extra


def _filled(word: str, values: dict[str, str], agent: AgentFile) -> str:
    """`{name}`, `{file}` and `{prompt}` (the file's text after the front matter) in a runner's words."""
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    if "{prompt}" in word:
        with open(agent.file, encoding="utf-8", errors="replace") as file:
            text = file.read()
        word = word.replace("{prompt}", text.partition("\n---")[2].strip() if text.startswith("---") else text)
    return word


def project_onto_walls(config: Config, tools: ToolGuard) -> None:
    """Gives an agent that may not write a read-only project, and one without network tools no network."""
    read_only, no_network = project(tools)
    if read_only:
        config.filesystem.read_only = True
        config.filesystem.allow_write = []
    if no_network:
        config.network = _closed(config.network, config.agents.hosts)


def _closed(network: Network, hosts: list[str]) -> Network:
    """A network that leads to these hosts alone. Of the other one it keeps only what opens nothing."""
    from sandbox.config.model import Network

    made = Network()
    for name in OPENS_NOTHING:
        setattr(made, name, getattr(network, name))
    made.http.deny = network.http.deny
    made.allowed_hosts = list(hosts)
    return made
