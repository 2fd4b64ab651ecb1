"""`sandbox test`: tries every rule of the configuration in a real sandbox and compares the results.

It uses its own project, with one file for each pattern, beside another project that must stay invisible. Everything
else (isolation, variables, hosts, tools) is the configuration as it applies here.
"""

from __future__ import annotations

import os
import tempfile

from sandbox.cli.output import print_json, table
from sandbox.config.layers import Resolved, resolve
from sandbox.i18n import _
from sandbox.policy.environment import EnvFilter
from sandbox.policy.files import FileGuard
from sandbox.policy.tools import ToolGuard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from sandbox.sandbox import Sandbox

CANARY = "sandbox-test-canary"


class Try:
    """One rule: what should happen, and what did."""

    __slots__ = ("kind", "target", "expected", "seen", "rule")

    def __init__(self, kind: str, target: str, expected: bool, rule: str) -> None:
        self.kind = kind
        self.target = target
        self.expected = expected
        self.rule = rule
        self.seen: bool | None = None

    @property
    def ok(self) -> bool:
        return self.seen is self.expected


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help=_("read this configuration file"))
    parser.add_argument("--json", action="store_true", help=_("print JSON"))


def run(arguments: Namespace) -> int:
    resolved = resolve({}, project=".", config_file=arguments.config)
    with tempfile.TemporaryDirectory(prefix="sandbox-test-", dir=os.path.expanduser("~")) as place:
        tries = list(prove(resolved, os.path.realpath(place)))
    failed = [one for one in tries if not one.ok]
    if arguments.json:
        print_json(
            {
                "ok": not failed,
                "tries": [
                    {
                        "kind": t.kind,
                        "target": t.target,
                        "rule": t.rule,
                        "expected": _word(t.expected),
                        "seen": _word(t.seen),
                    }
                    for t in tries
                ],
            }
        )
        return 1 if failed else 0
    heads = ("", _("TRIED"), _("TARGET"), _("EXPECTED"), _("SEEN"), _("RULE"))
    rows = (
        ("ok" if t.ok else "!!", _(t.kind), t.target, _(_word(t.expected)), _(_word(t.seen)), t.rule) for t in tries
    )
    print(table(rows, heads))
    print(_("{count} rules tried, {failed} unexpected results").format(count=len(tries), failed=len(failed)))
    return 1 if failed else 0


def _word(allowed: bool | None) -> str:
    return "-" if allowed is None else "allowed" if allowed else "blocked"


def prove(resolved: Resolved, place: str) -> Iterator[Try]:
    """Builds the project, starts the sandbox, tries everything."""
    from sandbox.sandbox import Sandbox

    config = resolved.config
    root = f"{place}/project"
    files = _furnish(root, config.filesystem.blocked_patterns, config.filesystem.allowed_patterns)
    other = f"{place}/other-project"
    _write(f"{other}/file")
    config.filesystem.root = root
    if config.mode == "max":
        config.filesystem.overlay = True
    variables = _variables(config.environment.allow, config.environment.block)
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        with Sandbox(config) as sandbox:
            guard = FileGuard(config.filesystem, home=os.path.expanduser("~"))
            yield from _tried_files(sandbox, guard, files, other)
            yield from _tried_writes(sandbox, guard)
            yield from _tried_variables(sandbox, EnvFilter.of(config, os.environ), variables)
            yield from _tried_hosts(sandbox, resolved)
    finally:
        os.environ.clear()
        os.environ.update(before)
    yield from _tried_tools(ToolGuard(config.tools, root=root))


# -- files


def sample(pattern: str) -> str:
    """A path that a pattern must match: `**/.env*` gives `deep/er/.envsample`."""
    body = pattern.removeprefix("./").lstrip("/")
    anywhere = "/" not in body.rstrip("/") or body.startswith("**/")
    body = body.replace("**/", "").replace("**", "sample").replace("*", "sample").replace("?", "s")
    while "[" in body and "]" in body[body.index("[") + 2 :]:
        start = body.index("[")
        end = body.index("]", start + 2)
        body = body[:start] + ("\u00b7" if body[start + 1] in "!^" else body[start + 1]) + body[end + 1 :]
    body = f"{body}inside" if body.endswith("/") else body
    return f"deep/er/{body}" if anywhere else body


def _furnish(root: str, blocked: list[str], allowed: list[str]) -> list[str]:
    files = ["plain.txt", *map(sample, blocked), *map(sample, allowed)]
    for name in files:
        _write(f"{root}/{name}")
    return list(dict.fromkeys(files))


def _write(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(CANARY)


def _tried_files(sandbox: Sandbox, guard: FileGuard, files: list[str], other: str) -> Iterator[Try]:
    outside = [other + "/file", "~/.ssh/id_rsa", "~/.aws/credentials", "/etc/shadow", "/etc/machine-id", ".."]
    for name in (*files, *outside):
        decision = guard.check(name)
        one = Try("read", name, decision.allowed, decision.rule)
        path = os.path.expanduser(name) if name.startswith("~") else name
        command = ["ls", f"{path}/other-project"] if name == ".." else ["cat", "--", path]
        result = sandbox.exec(command)
        one.seen = result.exit_code == 0 and (CANARY in result.stdout or name not in files)
        yield one


def _tried_writes(sandbox: Sandbox, guard: FileGuard) -> Iterator[Try]:
    for name in ("new-file.txt", "plain.txt"):
        decision = guard.check(name, "write")
        one = Try("write", name, decision.allowed, decision.rule)
        one.seen = sandbox.exec(["sh", "-c", f"echo x >> {name}"]).exit_code == 0
        yield one
    name = f"~/.sandbox-test-{os.urandom(8).hex()}"  # a file that nobody has: there may be no walls around the home
    decision = guard.check(name, "write")
    outside = Try("write", name, decision.allowed, decision.rule)
    path = os.path.expanduser(name)
    try:
        sandbox.exec(["sh", "-c", f'echo {CANARY} > "$0"', path])
        outside.seen = _contains(path)
    finally:
        if os.path.lexists(path):
            os.unlink(path)
    yield outside


def _contains(path: str) -> bool:
    try:
        with open(path, errors="replace") as file:
            return CANARY in file.read()
    except OSError:
        return False


# -- variables


def _variables(allow: list[str], block: list[str]) -> dict[str, str]:
    names = ["NODE_ENV", "DEBUG", "SAMPLE_API_KEY", "SAMPLE_SECRET", "SAMPLE_TOKEN", "AWS_SAMPLE", "GITHUB_SAMPLE"]
    names += [one.replace("*", "SAMPLE").replace("?", "S") for one in (*allow, *block)]
    names += ["SSH_AUTH_SOCK", "LD_PRELOAD"]
    return dict.fromkeys(names, CANARY)


def _tried_variables(sandbox: Sandbox, rules: EnvFilter, variables: dict[str, str]) -> Iterator[Try]:
    lines = sandbox.exec(["env", "-0"]).stdout.split("\0")
    # PATH, HOME and USER are set for the inside, so their presence is what counts.
    seen = {line.partition("=")[0]: line.partition("=")[2] for line in lines}
    for name in (*variables, "PATH", "HOME", "USER"):
        decision = rules.check(name, variables.get(name, ""))
        one = Try("variable", name, decision.allowed or name in rules.set, decision.rule)
        one.seen = name in seen
        yield one


# -- hosts


def _tried_hosts(sandbox: Sandbox, resolved: Resolved) -> Iterator[Try]:
    """Tries hosts without sending anything to anybody."""
    from sandbox.policy.hosts import InvalidHost, canonical_host
    from sandbox.policy.network import NetworkPolicy

    network = resolved.config.network
    policy = NetworkPolicy(network)
    asked = ["not-allowed.example", *network.allowed_hosts, *network.denied_hosts]
    plain = (one.removeprefix("tcp:") for one in asked)
    names = [one.rpartition(":")[0] if one.count(":") == 1 else one for one in plain]
    for name in dict.fromkeys(name.replace("*", "sample", 1) for name in names):
        try:
            decision = policy.name(canonical_host(name))
        except InvalidHost:
            continue
        if "/" in name or name.replace(".", "").isdigit() or ":" in name:
            continue  # an address is not resolved
        one = Try("host", name, decision.allowed, decision.rule)
        one.seen = _reached(sandbox, name, decision.allowed)
        yield one
    local = Try("host", "localhost", network.allow_localhost, "network.allow_localhost")
    local.seen = sandbox.exec(["getent", "ahosts", "localhost"]).exit_code == 0
    if network.allow_localhost:
        yield local


_KNOCK = r"exec 3<>/dev/tcp/$0/80 && printf 'GET / HTTP/1.0\r\nHost: %s\r\n\r\n' $0 >&3 && cat <&3"


def _reached(sandbox: Sandbox, name: str, allowed: bool) -> bool:
    """Every name resolves inside. A refused one is connected to; for an allowed one nothing is sent to anybody."""
    if allowed:
        return sandbox.exec(["getent", "ahosts", name]).exit_code == 0
    done = sandbox.exec(["bash", "-c", _KNOCK, name])
    return done.exit_code == 0 and "Blocked by the sandbox" not in done.stdout


# -- tools


def _tried_tools(guard: ToolGuard) -> Iterator[Try]:
    """Checks each pattern with a call that it matches, and with one that nothing allows."""
    for pattern in guard.disallowed:
        tool, given = call_for(pattern.name, pattern.arguments)
        one = Try("tool", pattern.text, False, "tools.disallowed")
        one.seen = bool(guard.check(tool, given))
        yield one
    for allowed in guard.allowed:
        for pattern in allowed:
            tool, given = call_for(pattern.name, pattern.arguments)
            one = Try("tool", pattern.text, not guard.refuses(tool, given), "tools.allowed")
            one.seen = bool(guard.check(tool, given))
            yield one


def call_for(name: str, arguments: list[str]) -> tuple[str, dict[str, str]]:
    """A tool call that a pattern matches."""
    from sandbox.policy.tools import SHELL

    tool = name.replace("*", "Sample")
    if not arguments:
        return tool, {}
    argument = arguments[0]
    if tool in SHELL:
        return tool, {"command": argument.replace(":*", " sample").replace(":", " ").replace("*", "sample")}
    if argument.startswith("domain:"):
        return tool, {"url": f"https://{argument.removeprefix('domain:').replace('*', 'sample')}/"}
    return tool, {"file_path": sample(argument)}
