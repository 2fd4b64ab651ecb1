"""`sandbox run`: runs one command in a sandbox, from a terminal or a script."""

from __future__ import annotations

import os
import sys

from sandbox.cli import options
from sandbox.cli.options import Option, add_to
from sandbox.errors import SandboxError
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from sandbox.cli.options import Arguments
    from sandbox.config.layers import Resolved, Widening
    from sandbox.registry.detach import Background
    from sandbox.sandbox import Sandbox


OPTIONS = (
    Option("--config", "read this configuration file", value="FILE"),
    Option("--profile", "run with this profile; without a command, its program", value="NAME"),
    Option("--trust", "with a profile: skip the program's own permission prompts", default=False),
    Option("--mode", "off, light, standard or max", value="MODE"),
    Option("--engine", "isolation engine: auto, bubblewrap, none …", value="ENGINE"),
    Option("--image", "what is at /: host, minimal, a directory, a name or a reference", value="IMAGE"),
    Option("--user", "user inside the sandbox: user or root", value="USER"),
    Option("--root", "project directory (default: current directory)", value="DIR"),
    Option("--overlay", "keep changes in a separate layer, to review and apply"),
    Option("--branch", "work on this git branch in an overlay; its commits are brought over", value="NAME"),
    Option("--commit-rest", "commit uncommitted changes to the branch at the end", default=False),
    Option("--force", "replace a branch that the commits do not continue; allow a default branch", default=False),
    Option("--memory", "memory limit, such as 512m", value="SIZE"),
    Option("--cpus", "CPU limit, such as 1.5", value="N"),
    Option("--pids", "maximum number of processes", value="N", number=True),
    Option("--timeout", "time limit, such as 30s", value="TIME"),
    Option("--env", "set a variable, or pass yours", value="NAME[=VALUE]", many=True),
    Option("--ro", "make another path readable", value="PATH", many=True),
    Option("--rw", "make another path writable", value="PATH", many=True),
    Option("--allow-host", "allow connections to this host", value="HOST", many=True),
    Option("--network", "network preset: closed, registries or open", value="PRESET"),
    Option("--ask", "ask before a connection to a host that is not listed"),
    Option("--publish", "publish a sandbox port on the host", value="[HOSTPORT:]PORT", many=True),
    Option("--localhost", "make a port of the host's loopback reachable", value="PORT", number=True, many=True),
    Option("--detach", "run in the background and print the sandbox's id", short="-d", default=False),
    Option("--json", "print the result and the output as JSON", default=False),
)


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox run [options] [--] command…\n       sandbox PROFILE [options] [--] [arguments…]"
    add_to(parser, OPTIONS)


def parse(words: list[str]) -> Arguments | None:
    return options.parse(words, OPTIONS)


def run(arguments: Namespace | Arguments) -> int:
    if not arguments.json:
        return _run(arguments)
    from sandbox.cli import as_json

    try:
        resolved, command = _asked(arguments)
        if (cluster := _cluster(resolved)) is not None:
            from sandbox.cli import run_on_cluster

            return run_on_cluster.run(cluster, resolved, command, as_json=True)
        from sandbox.service import create

        made = create(resolved, command=command, tell=tell_ignored)
    except (SandboxError, OSError) as problem:
        as_json.failed(problem)
        raise
    with made as sandbox:
        if sandbox.config.filesystem.branch is None:
            return as_json.run(sandbox, command, _start(sandbox, arguments))
        from sandbox.cli.branch import bring_as_json

        return as_json.run(sandbox, command, _start(sandbox, arguments), lambda: bring_as_json(sandbox, arguments))


def _asked(arguments: Namespace | Arguments) -> tuple[Resolved, list[str]]:
    """The configuration and the command."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command and arguments.profile is None and arguments.image in (None, "host"):
        raise SandboxError("no command; try `sandbox run -- ls`")
    if arguments.trust and arguments.profile is None:
        raise SandboxError("--trust needs a profile; name one with --profile")
    if arguments.detach and arguments.json:
        raise SandboxError("--json and --detach cannot be used together: --detach does not wait for a result")
    _hide(arguments)
    if arguments.branch is None:
        if arguments.commit_rest or arguments.force:
            raise SandboxError("--commit-rest and --force need --branch")
    elif arguments.root is None:
        from sandbox.branches.target import top_of

        # The whole work tree: half of one would look like files that were deleted.
        vars(arguments)["root"] = top_of(".")
    if arguments.profile is not None:
        return _with_profile(arguments, command)
    resolved = configuration(arguments)
    if _cluster(resolved) is not None:
        from sandbox.cli.run_on_cluster import refuse

        refuse(arguments, command)
    elif resolved.config.image is not None:
        command = _in_image(resolved, command, arguments)
    return resolved, command


def _cluster(resolved: Resolved) -> str | None:
    """The cluster to run on, or None for this machine. An empty SANDBOX_CLUSTER overrides the configuration: None."""
    named = os.environ.get("SANDBOX_CLUSTER")
    return (resolved.config.cluster if named is None else named) or None


def _in_image(resolved: Resolved, command: list[str], arguments: Namespace | Arguments) -> list[str]:
    """The command as the image has it run: docs/images.md."""
    from sandbox.config.image_choice import asked_image

    if asked_image(resolved.config) is None:
        if not command:
            raise SandboxError("no command; try `sandbox run -- ls`")
        return command
    from sandbox.engines.choose import choose
    from sandbox.images.obtain import command_of

    choose(resolved.config).bring_image(resolved.config)
    command, vars(arguments)["start"] = command_of(resolved.config, command)
    return command


def _with_profile(arguments: Namespace | Arguments, command: list[str]) -> tuple[Resolved, list[str]]:
    from sandbox.profiles.prepare import prepare

    prepared = prepare(
        arguments.profile,
        command,
        flags(arguments),
        project=arguments.root or ".",
        config_file=arguments.config,
        trust=arguments.trust,
    )
    if _cluster(prepared.resolved) is not None:
        from sandbox.cli.run_on_cluster import refuse

        refuse(arguments, command)
    from sandbox.cli.output import shown

    for notice in prepared.notices:
        print(f"sandbox: {shown(_.text(notice))}", file=sys.stderr)
    return prepared.resolved, prepared.command


def _run(arguments: Namespace | Arguments) -> int:
    resolved, command = _asked(arguments)
    if (cluster := _cluster(resolved)) is not None:
        from sandbox.cli import run_on_cluster

        return run_on_cluster.run(cluster, resolved, command)
    if arguments.detach:
        from sandbox.registry.detach import detach

        return detach(lambda background: _in_background(resolved, command, arguments, background))
    from sandbox import readiness
    from sandbox.service import create
    from sandbox.wiring import Wiring

    Wiring.soon += ("sandbox.cli.foreground", "sandbox.cli.run_summary")
    if resolved.config.filesystem.branch is None:  # else git runs inside first
        readiness.hold()  # until the command has run for a moment (`cli/relay.py`)
    sandbox = create(resolved, command=command, tell=tell_ignored)
    from sandbox.cli.foreground import foreground
    from sandbox.cli.run_summary import Refusals, tell, tell_notices, to_its_end

    tell_notices(sandbox)
    refusals = Refusals(sandbox, resolved.expected)
    result = to_its_end(sandbox, lambda: foreground(sandbox, command, directory=_start(sandbox, arguments)))
    if sandbox.config.filesystem.branch is not None:
        from sandbox.cli.branch import bring_at_end

        return bring_at_end(sandbox, arguments, tell(sandbox, result, refusals))
    return tell(sandbox, result, refusals)


def _start(sandbox: Sandbox, arguments: Namespace | Arguments) -> str | None:
    """Where the command starts: with --branch in this directory, which may be below the work tree's top; an image's own
    command where the image says."""
    if sandbox.config.filesystem.branch is None:
        return vars(arguments).get("start")
    here = os.path.realpath(".")
    return here if here.startswith(f"{sandbox.directory}/") else None


def _hide(arguments: Namespace | Arguments) -> None:
    """Hides values of variables in our arguments and, in the background, secrets in the command."""
    values = [value for one in arguments.env if (value := one.partition("=")[2])]
    if arguments.detach:
        from sandbox.policy.environment import secrets_of

        values += secrets_of(os.environ)
    if values:
        from sandbox.cli.arguments import hide_in_arguments

        hide_in_arguments(values)


def _in_background(
    resolved: Resolved, command: list[str], arguments: Namespace | Arguments, background: Background
) -> int:
    from sandbox.cli.foreground import foreground
    from sandbox.cli.run_summary import status, tell_left, tell_notices, to_its_end
    from sandbox.errors import SandboxClosed
    from sandbox.service import create

    sandbox = create(resolved, command=command, tell=tell_ignored)
    tell_notices(sandbox)
    told = len(sandbox.notices)
    background.print_to(sandbox.log)
    # From here on, what is printed goes into the log.
    try:
        result = to_its_end(
            sandbox,
            lambda: foreground(
                sandbox,
                command,
                started=lambda: background.started(sandbox.id),
                directory=_start(sandbox, arguments),
            ),
        )
    except SandboxClosed as problem:
        if sandbox.end_reason:
            print(f"sandbox: {_.text(problem)}", file=sys.stderr)
        return 0  # it was killed or timed out, as intended
    except SandboxError as problem:
        print(f"sandbox: {_.text(problem)}", file=sys.stderr)
        raise
    tell_left(sandbox, told)
    if sandbox.config.filesystem.branch is not None:
        from sandbox.cli.branch import bring_at_end

        return bring_at_end(sandbox, arguments, status(result))
    return status(result)


def configuration(arguments: Namespace | Arguments) -> Resolved:
    """The configuration from flags and files. Raises ConfigError."""
    from sandbox import service

    return service.configuration(flags(arguments), project=arguments.root or ".", config_file=arguments.config)


def tell_ignored(ignored: Widening) -> None:
    """Prints a project's setting that was ignored."""
    from sandbox.cli.output import shown

    print(f"sandbox: {shown(_.text(ignored.message))}", file=sys.stderr)


def flags(arguments: Namespace | Arguments) -> dict[str, object]:
    """The command line as a configuration layer, without options that were not given."""
    filesystem = {
        "root": os.path.abspath(os.path.expanduser(arguments.root)) if arguments.root else None,
        "overlay": arguments.overlay,
        "branch": arguments.branch,
        "allow_read": arguments.ro or None,
        "allow_write": arguments.rw or None,
    }
    layer: dict[str, object] = {
        "mode": arguments.mode,
        "engine": arguments.engine,
        "image": _image(arguments.image),
        "user": arguments.user,
        "filesystem": _said(filesystem),
        "limits": _said({name: getattr(arguments, name) for name in ("memory", "cpus", "pids", "timeout")}),
        "environment": _said({"set": _variables(arguments.env) or None}),
        "network": _said(
            {
                "allowed_hosts": arguments.allow_host or None,
                "preset": arguments.network,
                "ask": arguments.ask,
                "publish": arguments.publish or None,
                "localhost_ports": arguments.localhost or None,
            }
        ),
    }
    return _said(layer)


def _image(asked: str | None) -> str | None:
    """A directory (`./x`) as an absolute path; `x` alone is a name and stays as it is."""
    return os.path.abspath(os.path.expanduser(asked)) if asked and asked.startswith((".", "~")) else asked


def _said(options: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None and value != {}}


def _variables(given: list[str]) -> dict[str, str]:
    """`NAME=VALUE` sets a variable; `NAME` passes the user's own."""
    chosen: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name:
            raise SandboxError("--env needs a variable name before the `=`")
        if equals or name in os.environ:
            chosen[name] = value if equals else os.environ[name]
    return chosen
