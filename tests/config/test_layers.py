"""Layers of configuration: who wins, where a value came from, and what a project may not do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.config.layers import Resolved, present, resolve
from sandbox.config.model import SENSITIVE_PATTERNS, Config
from sandbox.config.tighten import RULES
from sandbox.errors import ConfigError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def user(project: Path, text: str) -> None:
    (project.parent / "home").mkdir(exist_ok=True)
    (project.parent / "home" / "config.yaml").write_text(text)


def own(project: Path, text: str, name: str = ".sandbox") -> None:
    (project / name).mkdir(exist_ok=True)
    (project / name / "config.yaml").write_text(text)


def resolved(project: Path, flags: dict[str, object] | None = None) -> Resolved:
    return resolve(flags or {}, project=str(project))


def test_without_files_everything_is_built_in(project: Path) -> None:
    found = resolved(project)
    expected = Config()
    expected.filesystem.root = os.path.realpath(project)
    assert found.config == expected
    assert not found.warnings
    assert str(found.origin("mode")) == "built-in"


def test_flags_beat_the_project_beats_the_user(project: Path) -> None:
    user(project, "limits:\n  memory: 4g\n  pids: 100\n  timeout: 60\n")
    own(project, "limits:\n  memory: 2g\n  timeout: 30\n")
    found = resolved(project, {"limits": {"timeout": 3600}})
    assert (found.config.limits.memory, found.config.limits.pids) == (2 * 2**30, 100)
    assert found.config.limits.timeout == 3600
    assert found.origin("limits.timeout").layer == "flags"
    assert str(found.origin("limits.memory")) == f"project ({project}/.sandbox/config.yaml:2)"
    assert str(found.origin("limits.pids")) == f"user ({project.parent}/home/config.yaml:3)"


def test_lists_replace_each_other(project: Path) -> None:
    user(project, "network:\n  allowed_hosts: [a.org, b.org]\n")
    found = resolved(project, {"network": {"allowed_hosts": ["c.org"]}})
    assert found.config.network.allowed_hosts == ["c.org"]


def test_a_named_file_counts_like_the_users_but_the_project_still_tightens(project: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("network:\n  allowed_hosts: [a.org, b.org]\n")
    own(project, "network:\n  allowed_hosts: [b.org]\n")
    found = resolve({}, project=str(project), config_file=str(tmp_path / "mine.yaml"))
    assert found.config.network.allowed_hosts == ["b.org"]


def test_a_file_that_was_named_but_is_missing_is_an_error(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file"):
        resolve({}, project=str(project), config_file="nowhere.yaml")


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        ("enabled: false", ("enabled", True)),
        ("mode: 'off'", ("mode", "standard")),
        ("mode: light", ("mode", "standard")),
        ("engine: none", ("engine", "auto")),
        ("filesystem:\n  root: ..", None),
        ("filesystem:\n  root: /", None),
        ("filesystem:\n  allow_read: [/etc]", ("filesystem.allow_read", [])),
        ("filesystem:\n  allow_write: ['~']", ("filesystem.allow_write", [])),
        ("filesystem:\n  allowed_patterns: ['*']", ("filesystem.allowed_patterns", [])),
        ("environment:\n  filter_secrets: false", ("environment.filter_secrets", True)),
        ("environment:\n  allow: [AWS_SECRET_ACCESS_KEY]", ("environment.allow", [])),
        ("environment:\n  allow: ['*']", ("environment.allow", [])),
        ("environment:\n  allow: [SSH_AUTH_SOCK]", ("environment.allow", [])),
        ("environment:\n  set: {LD_PRELOAD: ./evil.so}", ("environment.set", {})),
        ("environment:\n  set: {X: '${OPENAI_API_KEY}'}", ("environment.set", {})),
        ("network:\n  allowed_hosts: [evil.org]", ("network.allowed_hosts", [])),
        ("network:\n  allowed_hosts: ['*']", ("network.allowed_hosts", [])),
        ("network:\n  block_private_ips: false", ("network.block_private_ips", True)),
        ("network:\n  localhost_ports: [5432]", ("network.localhost_ports", [])),
        ("network:\n  publish: ['0.0.0.0:80:80']", ("network.publish", [])),
        ("network:\n  secrets: {X: {from_env: HOME, hosts: [evil.org]}}", ("network.secrets", {})),
        ("network:\n  policy_script: x.star", ("network.policy_script", None)),
        ("network:\n  upstream_proxy: http://evil.org:1", ("network.upstream_proxy", None)),
        ("network:\n  ca_certificates: [evil.pem]", ("network.ca_certificates", [])),
        ("tools:\n  enforce_agent_permissions: false", ("tools.enforce_agent_permissions", True)),
        ("agents:\n  runner: [./evil]", ("agents.runner", [])),
        ("agents:\n  allow_no_sandbox: true", ("agents.allow_no_sandbox", False)),
        ("audit:\n  directory: ./here", ("audit.directory", None)),
        ("vfs:\n  direct_mounts: {/x: {host_path: /etc}}", ("vfs.direct_mounts", {})),
    ],
)
def test_a_project_cannot_loosen(project: Path, setting: str, kept: tuple[str, object] | None) -> None:
    own(project, setting + "\n")
    found = resolved(project)
    (warning,) = found.warnings
    assert "ignored, because a project file may only tighten" in str(warning)
    assert f"{project}/.sandbox/config.yaml:" in str(warning)
    if kept is None:
        assert found.config.filesystem.root == os.path.realpath(project)
        return
    value: object = found.config
    for name in kept[0].split("."):
        value = getattr(value, name)
    assert value == kept[1]


def test_a_project_tightens(project: Path) -> None:
    (project / "src").mkdir()
    user(project, "network:\n  allowed_hosts: ['*.a.org', b.org]\nfilesystem:\n  allow_read: [/usr/share]\n")
    own(
        project,
        "mode: max\n"
        "filesystem:\n  root: src\n  read_only: true\n  blocked_patterns: ['*.sqlite']\n"
        "  allow_read: [/usr/share/doc]\n"
        "environment:\n  allow: [NODE_ENV]\n  block: [CI]\n  set: {NODE_ENV: test}\n"
        "network:\n  allowed_hosts: ['x.a.org:443']\n  denied_hosts: [y.a.org]\n"
        "tools:\n  allowed: ['Read', 'Bash(git:*)']\n  disallowed: [Write]\n"
        "limits:\n  memory: 1g\n",
    )
    found = resolved(project)
    assert found.warnings == []
    config = found.config
    assert (config.mode, config.filesystem.read_only) == ("max", True)
    assert config.filesystem.root == os.path.realpath(project / "src")
    assert config.filesystem.blocked_patterns == [*SENSITIVE_PATTERNS, "*.sqlite"]  # block-lists add up
    assert config.filesystem.allow_read == ["/usr/share/doc"]
    assert config.environment.set == {"NODE_ENV": "test"}
    assert config.network.allowed_hosts == ["x.a.org:443"]
    assert config.tools.allowed == ["Read", "Bash(git:*)"]
    assert config.limits.memory == 2**30


def test_a_root_that_is_a_link_out_of_the_project_is_ignored(project: Path) -> None:
    (project / "link").symlink_to(project.parent)
    own(project, "filesystem:\n  root: link\n")
    found = resolved(project)
    assert found.config.filesystem.root == os.path.realpath(project)
    assert found.warnings


def test_what_the_user_allowed_a_project_may_repeat(project: Path) -> None:
    user(project, "agents:\n  runner: [claude]\nnetwork:\n  allowed_hosts: [a.org]\n")
    own(project, "agents:\n  runner: [claude]\nnetwork:\n  allowed_hosts: [a.org]\n")
    assert resolved(project).warnings == []


def test_every_setting_has_a_rule_for_projects(project: Path) -> None:
    plain = Config().plain()
    paths = {path for path, _, _ in present(Config(), plain)}
    assert paths == set(RULES)


def test_in_the_home_directory_the_users_file_is_not_the_projects_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / ".sandbox"))
    (tmp_path / ".sandbox").mkdir()
    (tmp_path / ".sandbox" / "config.yaml").write_text("network:\n  allowed_hosts: [a.org]\n")
    found = resolve({}, project=str(tmp_path))
    assert found.config.network.allowed_hosts == ["a.org"]
    assert found.warnings == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "network:\n  allowed_host: [x]\n",
            "config.yaml:2: network: unknown key 'allowed_host'; did you mean 'allowed_hosts'?",
        ),
        ("limits:\n  memory: lots\n", "config.yaml:2: limits.memory: must be a size such as 512m"),
        (
            "mode: standrad\n",
            "config.yaml:1: mode: must be one of off, light, standard, max, not 'standrad'; did you mean",
        ),
        ("a: [\n", "config.yaml:2: is not valid YAML"),
        ("mode: max\nmode: light\n", "config.yaml:2: duplicate key 'mode'"),
        ("a: &x [1]\nb: *x\n", "aliases are not supported"),
        ("- 1\n", "must be a mapping"),
        (
            "filesystem:\n  blocked_patterns:\n    - ok\n    - '!no'\n",
            "config.yaml:2: filesystem.blocked_patterns: '!no'",
        ),
        ("enabled: 'yes'\n", "config.yaml:1: enabled: must be true or false, not a string"),
    ],
)
def test_a_mistake_is_reported_with_file_line_path_and_suggestion(project: Path, text: str, message: str) -> None:
    user(project, text)
    with pytest.raises(ConfigError) as told:
        resolved(project)
    assert message in str(told.value)


def test_hostile_project_files_are_refused_not_read(project: Path) -> None:
    (project / ".sandbox").mkdir()
    os.mkfifo(project / ".sandbox" / "config.yaml")
    with pytest.raises(ConfigError, match="is not a regular file"):
        resolved(project)
    os.unlink(project / ".sandbox" / "config.yaml")
    (project / ".sandbox" / "config.yaml").write_text("#" * (2**20 + 1))
    with pytest.raises(ConfigError, match="is larger than"):
        resolved(project)
    (project / ".sandbox" / "config.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        resolved(project)
    (project / ".sandbox" / "config.yaml").write_text("[" * 100_000)
    with pytest.raises(ConfigError):
        resolved(project)


@pytest.mark.parametrize("linked", [".sandbox/config.yaml", ".sandbox"])
def test_a_projects_file_that_is_a_link_reveals_nothing_of_its_target(project: Path, linked: str) -> None:
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.yaml").write_text("root:$6$hash:20000:0: x\n")
    link = project / linked
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere if link.parent == project else elsewhere / "config.yaml")
    with pytest.raises(ConfigError, match="is a symbolic link") as told:
        resolved(project)
    assert "hash" not in str(told.value)


def test_the_users_own_file_may_be_a_link(project: Path) -> None:
    (project.parent / "dotfiles.yaml").write_text("mode: max\n")
    (project.parent / "home").mkdir()
    (project.parent / "home" / "config.yaml").symlink_to(project.parent / "dotfiles.yaml")
    assert resolved(project).config.mode == "max"


@pytest.mark.parametrize(
    "text",
    [
        "limits: {timeout: 99999999999999999999s}",
        "limits: {timeout: .inf}",
        "limits: {cpus: .nan}",
        "limits: {cpus: 1e300}",
        "limits: {cpus: 0.001}",
        "limits: {memory: 1e300t}",
        f"limits: {{memory: {'1' * 400}}}",
        f"limits: {{pids: {'1' * 5000}}}",
        "limits: {pids: 99999999999}",
        "mode: 2026-99-99",
        "mode: !!bool x",
        "mode: !!timestamp x",
        'filesystem: {root: "a\\0b"}',
        'filesystem: {deny_read: ["a\\0b"]}',
        'environment: {set: {A: "a\\0b"}}',
    ],
)
def test_values_that_nothing_can_hold_are_mistakes_not_crashes(project: Path, text: str) -> None:
    own(project, text)
    with pytest.raises(ConfigError):
        resolved(project)


@pytest.mark.parametrize("name", ["LD_PRELOAD=/project/evil.so:", "=", "PATH=x"])
def test_a_variable_is_not_set_by_way_of_another_name(project: Path, name: str) -> None:
    own(project, f"environment: {{set: {{'{name}': x}}}}")
    with pytest.raises(ConfigError, match="is not a valid variable name"):
        resolved(project)
