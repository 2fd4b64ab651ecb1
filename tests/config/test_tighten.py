"""What holds with a project's file is never weaker than what holds without it: asked of the rules themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.config.layers import Resolved, present, resolve
from sandbox.config.model import MODES, PRESETS, Config
from sandbox.config.modes import default_limit, without_walls
from sandbox.config.restricted import restricted
from sandbox.config.tighten import RULES, tightened
from sandbox.errors import Denied
from sandbox.policy.environment import EnvFilter
from sandbox.policy.files import FileGuard
from sandbox.policy.hosts import canonical_host
from sandbox.policy.http import HttpRules
from sandbox.policy.network import NetworkPolicy
from sandbox.policy.tools import ToolGuard

LIMITS = ("memory", "cpus", "pids", "file_size", "open_files", "timeout")
SWITCHES = {path for path, rule in RULES.items() if getattr(rule, "__qualname__", "").startswith("safe.")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's home and a project in which every path below exists."""
    top = Path(os.path.realpath(tmp_path_factory.mktemp("tighten")))
    for name in FILES:
        (top / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (top / "project" / name).write_text("content")
    (top / "home").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(top / "project"))
        yield top


FILES = ("a", "sub/a", "sub/.env", ".env", ".aws/key", "sub/deep/b", "sub/deep/x.pem", "deep/b", ".netrc", "sub/.netrc")
PATHS = (".", "sub", "sub/deep", "sub/deep/b", ".aws", ".aws/key", ".netrc", "sub/.env", "~", "~/sub", "~/.aws", "..")
HOSTS = ("a.example", "x.a.example", "*.a.example", "*", "a.example:22", "*.a.example:8080", "b.example")
ADDRESSES = (
    "127.0.0.1",
    "127.1",
    "127.0.0.0/8",
    "127.0.0.1:22",
    "0.0.0.0/0",
    "10.0.0.5",
    "10.0.0.0/8:443",
    "[fd12::1]",
    "fd12::/16",
)
PORTS = ("a.example:022", "a.example:0443", "*:022", "tcp:127.0.0.1:443", "tcp:*:443", "*:*")
REQUESTS = ("GET a.example/x/**", "* a.example/**", "GET *.a.example/y", "POST b.example/z")
VARIABLES = ("PLAIN", "CI", "MY_TOKEN", "AWS_*", "*", "SSH_AUTH_SOCK", "LD_PRELOAD", "HIDDEN")
TOOLS = ("Read", "Write", "Bash(git:*)", "Bash", "*", "Edit(src/**)")
PATTERNS = (".env", "*.pem", "sub/deep/b", "deep/b", "**/b", "/a", ".aws/", "sub/a")


def some(values: tuple[Any, ...]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), max_size=3, unique=True)


def section(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


SETTINGS = section(
    mode=st.sampled_from(MODES),
    enabled=st.booleans(),
    limits=section(
        **{name: st.sampled_from([2**23, 2**31] if name == "memory" else [1, 100, 2000, 5000]) for name in LIMITS}
    ),
    filesystem=section(
        root=st.sampled_from((".", "sub", "sub/deep", ".aws", "..")),
        read_only=st.booleans(),
        allow_read=some(PATHS),
        allow_write=some(PATHS),
        deny_read=some(PATHS),
        deny_write=some(PATHS),
        blocked_patterns=some(PATTERNS),
        allowed_patterns=some(PATTERNS),
        toolchains=st.booleans(),
        scratch_size=st.sampled_from([4096, 2**20, 2**40]),
    ),
    environment=section(
        filter_secrets=st.booleans(),
        allow=some(VARIABLES),
        block=some(VARIABLES),
        set=st.dictionaries(st.sampled_from(VARIABLES[:3]), st.sampled_from(["x", "${KEY}"]), max_size=2),
    ),
    network=section(
        preset=st.sampled_from(PRESETS),
        allowed_hosts=some(HOSTS + ADDRESSES + PORTS),
        denied_hosts=some(HOSTS + ADDRESSES),
        block_private_ips=st.booleans(),
        allow_localhost=st.booleans(),
        allow_git=st.booleans(),
        intercept=st.booleans(),
        localhost_ports=some((80, 5432)),
        http=section(allow=some(REQUESTS), deny=some(REQUESTS)),
    ),
    tools=section(allowed=some(TOOLS), disallowed=some(TOOLS), enforce_agent_permissions=st.booleans()),
)


def layered(place: Path, user: dict[str, Any], project: dict[str, Any] | None, flags: dict[str, Any]) -> Resolved:
    os.environ["SANDBOX_HOME"] = str(place / "home")  # a fixture of every test sets it, and sets it back
    (place / "home" / "config.yaml").write_text(yaml.safe_dump(user))
    own = place / "project" / ".sandbox"
    own.mkdir(exist_ok=True)
    (own / "config.yaml").write_text(yaml.safe_dump(project or {}))
    return resolve(flags, project=str(place / "project"))


def limit(config: Config, name: str) -> float:
    asked = getattr(config.limits, name)
    value = default_limit(config.mode, name) if asked is None else asked
    return float("inf") if value is None else value


def given_away(config: Config, place: Path) -> set[object]:
    """Every question about this place, of those that this configuration answers with yes."""
    project, yes = str(place / "project"), set[object]()
    files = FileGuard(config.filesystem, home=project)
    for name in FILES:
        for operation in ("read", "write"):
            if files.check(f"{project}/{name}", operation):
                yes.add((operation, name))
    network = NetworkPolicy(config.network)
    rules = HttpRules(config.network.http.allow, config.network.http.deny)
    for address in ("127.0.0.1", "127.0.0.2", "10.0.0.5", "fd12::1"):
        for port in (22, 443):  # a name that resolves to it
            if network.addresses("a.example", port, [address]):
                yes.add(("resolved", address, port))
            if network.passes_raw(address, port):
                yes.add(("raw", address, port))
    for host in ("a.example", "x.a.example", "b.example", "c.example", "127.0.0.1", "127.0.0.2", "10.0.0.5", "fd12::1"):
        for port in (22, 25, 443, 8080):
            if network.connect(canonical_host(host), port):
                yes.add((host, port))
                for method, target in (("GET", "/x/1"), ("POST", "/z"), ("GET", "/y"), ("DELETE", "/q")):
                    if rules.denial(method, host, port, target) is None:
                        yes.add((method, host, port, target))
    variables = EnvFilter(config.environment)
    for name, value in (*((one, "x") for one in VARIABLES if "*" not in one), ("HIDDEN", "sk-looks-like-a-key")):
        if variables.check(name, value):
            yes.add((name, value))
    tools = ToolGuard(config.tools, root=project)
    for tool, asked in (("Read", {}), ("Write", {}), ("Bash", {"command": "git log"}), ("Bash", {"command": "rm x"})):
        if tools.check(tool, asked):
            yes.add((tool, str(asked)))
    yes.update(("port", port) for port in config.network.localhost_ports)
    return yes


# What a project's own list may name or leave out is decided by its layer; flags would hide it from view.
@settings(max_examples=150, deadline=None)
@given(SETTINGS, SETTINGS, st.sampled_from([None, *MODES]))
def test_nothing_is_weaker_with_a_projects_file(
    place: Path, user: dict[str, Any], project: dict[str, Any], mode: str | None
) -> None:
    flags = {"mode": mode} if mode else {}
    try:
        without = layered(place, user, None, flags).config
        given_away(without, place)
    except Exception:  # noqa: BLE001 - the user's own file is no good: then nothing runs, with or without a project
        return
    found = layered(place, user, project, flags)
    with_it = found.config
    for name in LIMITS:
        assert limit(with_it, name) <= limit(without, name), name
    assert with_it.filesystem.scratch_size <= without.filesystem.scratch_size
    assert MODES.index(with_it.mode) >= MODES.index(without.mode)
    assert without_walls(with_it) <= without_walls(without)
    plain, before = flat(with_it), flat(without)
    for path in SWITCHES:
        safe = path not in ("network.allow_localhost", "network.allow_git", "filesystem.toolchains")
        assert plain[path] == before[path] or plain[path] is safe, path
    if without_walls(with_it):
        assert with_it.environment.set == without.environment.set
        assert with_it.filesystem.root == without.filesystem.root
    assert given_away(with_it, place) <= given_away(without, place)


ENTRIES = st.lists(st.sampled_from(HOSTS + ADDRESSES + PORTS), max_size=4, unique=True)


@settings(max_examples=400, deadline=None)
@given(ENTRIES, st.sampled_from(PRESETS), ENTRIES.filter(bool))
def test_no_entry_of_a_projects_list_opens_a_host_an_address_or_a_port(
    place: Path, users: list[str], preset: str, projects: list[str]
) -> None:
    network = {"preset": preset, "allow_git": False}  # with git, ssh is open to every listed host anyway
    without = Config.read({"network": {**network, "allowed_hosts": users}})
    kept, _ = tightened("network.allowed_hosts", users, projects, without, "/")
    with_it = Config.read({"network": {**network, "allowed_hosts": kept}})
    assert given_away(with_it, place) <= given_away(without, place)


def flat(config: Config) -> dict[str, Any]:
    return {path: value for path, _, value in present(config, config.plain())}


@pytest.mark.walls  # so that somebody runs it as an ordinary user
@pytest.mark.skipif(os.geteuid() == 0, reason="for root it must be asked for: docs/limits.md")
def test_a_project_does_not_raise_the_modes_own_limit_on_processes(place: Path) -> None:
    found = layered(place, {}, {"limits": {"pids": 1_000_000}}, {})
    assert found.config.limits.pids is None
    assert "the limit is already 4096" in str(found.warnings[0])
    assert layered(place, {}, {"limits": {"pids": 100}}, {}).config.limits.pids == 100


@pytest.mark.parametrize("where", ["user", "flags"])
def test_a_project_does_not_raise_the_limits_of_max(place: Path, where: str) -> None:
    project = {"limits": {"memory": "64g", "cpus": 64, "pids": 100_000, "open_files": 100_000, "file_size": "1024g"}}
    user, flags = ({"mode": "max"}, {}) if where == "user" else ({}, {"mode": "max"})
    found = layered(place, user, project, flags)
    assert found.config.limits == Config().limits
    assert len(found.warnings) == 5


def test_a_limit_that_the_user_raised_is_what_a_project_may_undercut(place: Path) -> None:
    found = layered(place, {"limits": {"pids": 100_000}}, {"limits": {"pids": 50_000}}, {})
    assert (found.config.limits.pids, found.warnings) == (50_000, [])


@pytest.mark.parametrize(
    "user", [{"allowed_hosts": ["*"]}, {"preset": "open"}, {"allowed_hosts": ["*:*", "0.0.0.0/0", "::/0"]}]
)
@pytest.mark.parametrize(
    "entry",
    ["127.0.0.1", "127.1", "0x7f000001", "127.0.0.1.", "127.0.0.0/8", "127.0.0.1:443", "127.0.0.0/8:443",
     "[fd12::1]", "[fd12::1]:443", "fd12::1", "fd12::/16", "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021"],
)  # fmt: skip
def test_a_project_cannot_allow_addresses_by_a_wildcard(place: Path, user: dict[str, Any], entry: str) -> None:
    found = layered(place, {"network": user}, {"network": {"allowed_hosts": [entry]}}, {})
    assert found.config.network.allowed_hosts == []
    assert f"not allowed by the other layers: {entry}" in str(found.warnings[0])
    with pytest.raises(Denied, match="not allowed by the other layers"):
        restricted(Resolved(Config.read({"network": user}), {}, []), {"network": {"allowed_hosts": [entry]}}, "/")


def test_an_address_that_the_user_lists_is_reachable_on_fewer_ports(place: Path) -> None:
    kept = ["127.0.0.1:443", "10.0.0.0/8", "bücher.example"]
    user = {"allowed_hosts": ["127.0.0.1", "10.0.0.0/8", "*"]}
    assert (
        layered(place, {"network": user}, {"network": {"allowed_hosts": kept}}, {}).config.network.allowed_hosts == kept
    )


@pytest.mark.parametrize("entry", ["a.example:22", "a.example:022", "a.example:00022", "tcp:a.example:022"])
def test_ssh_needs_the_user_however_the_port_is_written(place: Path, entry: str) -> None:
    user = {"network": {"allowed_hosts": ["*", "tcp:*:443"], "allow_git": False}}
    found = layered(place, user, {"network": {"allowed_hosts": [entry]}}, {})
    assert found.config.network.allowed_hosts == []


@pytest.mark.parametrize("name", ["memory", "cpus", "pids", "open_files", "file_size"])
def test_a_remote_client_does_not_raise_a_modes_own_limit(name: str) -> None:
    owners = Resolved(Config.read({"mode": "max"}), {}, [])
    most = int(default_limit("max", name) or 0)
    with pytest.raises(Denied, match="the limit is already"):
        restricted(owners, {"limits": {name: most + 1}}, "/")
    assert getattr(restricted(owners, {"limits": {name: most}}, "/").limits, name) == most
    assert getattr(restricted(owners, {"limits": {name: None}}, "/").limits, name) is None


@pytest.mark.walls  # so that somebody runs it as an ordinary user
@pytest.mark.skipif(os.geteuid() == 0, reason="for root it must be asked for: docs/limits.md")
def test_a_remote_client_does_not_raise_the_limit_on_processes_of_standard() -> None:
    with pytest.raises(Denied, match="the limit is already 4096"):
        restricted(Resolved(Config(), {}, []), {"limits": {"pids": 4097}}, "/")
