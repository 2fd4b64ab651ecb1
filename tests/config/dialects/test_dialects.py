"""Foreign spellings, from the seeds' own samples."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.config.dialects import create, from_client, manager, srt, uds
from sandbox.config.from_program import read_config
from sandbox.config.home import user_config_file
from sandbox.config.layers import resolve
from sandbox.config.model import SENSITIVE_PATTERNS, Config
from sandbox.errors import ConfigError
from sandbox.policy.network import NetworkPolicy

AC_6 = """
# .uds/config.yaml
sandbox:
  enabled: true

  filesystem:
    root: ./  # Restrict to project root
    blocked-patterns:
      - "**/.env*"
      - "**/*.pem"
      - "**/credentials*"
    allowed-patterns:
      - ".env.example"  # Allow template

  environment:
    filter-secrets: true
    allow:
      - NODE_ENV
      - DEBUG
      - CI
    block:
      - AWS_*
      - GITHUB_TOKEN

  network:
    allow-external: false
    allow-localhost: true
    allow-git: true

  tools:
    enforce-agent-permissions: true
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    (tmp_path / "project" / ".uds").mkdir(parents=True)
    return tmp_path / "project"


def test_the_uds_block_of_the_seed_applies_as_it_is_written(project: Path) -> None:
    (project / ".uds" / "config.yaml").write_text(AC_6)
    found = resolve({}, project=str(project))
    assert found.warnings == []
    config = found.config
    assert config.enabled
    assert config.filesystem.root == os.path.realpath(project)
    assert config.filesystem.blocked_patterns == [*SENSITIVE_PATTERNS, "**/.env*", "**/*.pem", "**/credentials*"]
    assert config.filesystem.allowed_patterns == [".env.example"]
    assert config.environment.allow == []  # they pass anyway; an entry would pass them with any value
    assert config.environment.block == ["AWS_*", "GITHUB_TOKEN"]
    assert config.network.allowed_hosts == []
    assert config.network.allow_localhost
    assert config.network.allow_git
    assert found.origin("environment.block").line == 21


def test_other_blocks_of_the_uds_file_are_ignored(project: Path) -> None:
    (project / ".uds" / "config.yaml").write_text("agents:\n  anything: goes\n")
    assert resolve({}, project=str(project)).warnings == []


def test_a_mistake_in_the_uds_block_is_reported_in_its_own_spelling(project: Path) -> None:
    (project / ".uds" / "config.yaml").write_text("sandbox:\n  network:\n    allow-externl: false\n")
    with pytest.raises(ConfigError, match=r"config.yaml:3: sandbox.network: unknown key 'allow-externl'"):
        resolve({}, project=str(project))
    (project / ".uds" / "config.yaml").write_text("sandbox:\n  environment:\n    filter-secrets: 1\n")
    with pytest.raises(ConfigError, match=r"config.yaml:3: sandbox.environment.filter-secrets: must be true or false"):
        resolve({}, project=str(project))


def test_allow_external_needs_the_user(project: Path) -> None:
    (project / ".uds" / "config.yaml").write_text("sandbox:\n  network:\n    allow-external: true\n")
    found = resolve({}, project=str(project))
    assert found.config.network.allowed_hosts == []
    assert "not allowed by the other layers: *" in str(found.warnings[0])


def test_no_external_and_no_git_empties_the_users_list() -> None:
    data = uds.translate({"sandbox": {"network": {"allow-external": False}}}).data
    assert data == {"network": {"allowed_hosts": [], "preset": "closed", "http": {"allow": []}}}
    git = uds.translate({"sandbox": {"network": {"allow-external": False, "allow-git": True}}}).data
    assert git == {"network": {"allow_git": True}}


def test_no_external_network_closes_what_a_preset_opened(project: Path) -> None:
    (project / ".uds" / "config.yaml").write_text(
        "sandbox:\n  network:\n    allow-external: false\n    allow-git: false\n"
    )
    Path(user_config_file()).parent.mkdir(parents=True, exist_ok=True)
    Path(user_config_file()).write_text("network: {preset: open}\n")
    network = NetworkPolicy(resolve({}, project=str(project)).config.network)
    assert not network.connect("a.example", 443)
    assert not network.name("a.example")


SRT_SEED = {
    "network": {
        "allowedDomains": ["api.telegram.org", "*.github.com", "packages.example.org:443"],
        "deniedDomains": ["gist.github.com", "*:22"],
        "allowLocalBinding": True,
        "httpProxyPort": 3128,
    },
    "filesystem": {
        "denyRead": ["~/.ssh", "~/.aws", "**/*.sqlite"],
        "allowWrite": [".", "/tmp", "~/.openclaw"],
        "denyWrite": ["./secrets"],
    },
}


def test_srt_settings_of_the_seed() -> None:
    config = Config.read(srt.translate(SRT_SEED).data)
    assert config.network.allowed_hosts == ["api.telegram.org", "*.github.com", "packages.example.org:443"]
    assert config.network.denied_hosts == ["gist.github.com", "*:22"]
    assert config.network.upstream_proxy == "http://127.0.0.1:3128"
    assert config.filesystem.deny_read == ["~/.ssh", "~/.aws", "**/*.sqlite"]
    assert config.filesystem.show_host and config.filesystem.blocked_patterns == []
    assert config.filesystem.allow_write == ["/tmp", "~/.openclaw", *srt.ALWAYS_WRITABLE]
    assert config.filesystem.deny_write == ["./secrets"]
    assert not config.filesystem.read_only
    assert not config.environment.filter_secrets and config.environment.allow == ["*"]


@pytest.mark.parametrize("how", ["key", "argument"])
def test_strict_srt_settings_keep_the_home_closed(how: str) -> None:
    asked = {**SRT_SEED, "strict": True} if how == "key" else SRT_SEED
    config = Config.read(srt.translate(asked, strict=how == "argument").data)
    assert not config.filesystem.show_host and config.environment.filter_secrets and config.user == "user"
    assert config.filesystem.deny_read == ["~/.ssh", "~/.aws"]
    assert config.filesystem.blocked_patterns == [*SENSITIVE_PATTERNS, "**/*.sqlite"]
    assert config.filesystem.allow_write == ["~/.openclaw"]  # /tmp is the sandbox's own


def test_srt_lets_nothing_be_written_that_it_does_not_name() -> None:
    assert Config.read(srt.translate({"filesystem": {"allowWrite": []}}).data).filesystem.read_only
    assert Config.read(srt.translate({}).data).filesystem.read_only


def test_srt_settings_of_today(tmp_path: Path) -> None:
    (tmp_path / "corp.pem").touch()
    today = {
        "network": {
            "allowedDomains": ["api.anthropic.com"],
            "deniedDomains": [],
            "deniedDomainReasons": {"x.org": "no"},
            "strictAllowlist": True,
            "allowUnixSockets": ["/var/run/docker.sock"],
            "allowMachLookup": ["com.apple.*"],
            "tlsTerminate": {"extraCaCertPaths": [str(tmp_path / "corp.pem"), "/nowhere.pem"], "maxTunnels": 5},
            "parentProxy": {"https": "http://proxy:8080"},
        },
        "filesystem": {"denyRead": ["~"], "allowRead": ["."], "allowWrite": ["."], "denyWrite": []},
        "credentials": {
            "files": [{"path": "~/.netrc", "mode": "deny"}],
            "envVars": [{"name": "NPM_TOKEN", "mode": "deny"}, {"name": "ANTHROPIC_API_KEY", "mode": "mask"}],
        },
        "ignoreViolations": {"*": ["/usr/bin"]},
        "enableWeakerNestedSandbox": False,
        "mandatoryDenySearchDepth": 3,
        "ripgrep": {"command": "rg"},
        "git": {"safeDirectories": []},
    }
    translated = srt.translate(today)
    config = Config.read(translated.data)
    assert config.filesystem.deny_read == ["~", "~/.netrc"]
    assert config.filesystem.allow_read == ["."]
    assert config.environment.block == ["NPM_TOKEN"]
    [masked] = translated.masked
    assert (masked["variable"], masked["hosts"]) == ("ANTHROPIC_API_KEY", ["api.anthropic.com"])
    assert config.network.intercept
    assert config.network.ca_certificates == [str(tmp_path / "corp.pem")]
    assert config.network.denied_reasons == {"x.org": "no"}
    assert config.network.unix_sockets == ["/var/run/docker.sock"]
    assert config.network.upstream_proxy == "http://proxy:8080"


@pytest.mark.parametrize(
    "settings",
    [
        {"network": {"allowedDomains": ["*"]}},
        {"filesystem": {"disabled": True}},
        {"network": {"tlsTerminate": {"caKeyPath": "/k"}}},
        {"network": {"parentProxy": {"noProxy": ["localhost"]}}},
        {"network": {"ambiguousRequestTarget": "maybe"}},
        {"network": {"allowUnixSockets": ["*"]}},
        {"credentials": {"envVars": [{"name": "X", "mode": "mask", "injectHosts": []}]}},
        {"filesystem": {"allowWrite": [{"path": "x"}]}},
        {"filesystem": {"allowWrite": [""]}},
        {"allowNestedUserNamespaces": True},
        {"strict": "yes"},
        {"network": {"mitmProxy": {"socketPath": "/x", "domains": []}}},
        {"network": {"mitmProxy": {"domains": ["a.org"]}}},
        {"network": {"mitmProxy": {"socketPath": "/x", "domains": ["a.org"]}, "tlsTerminate": {}}},
        {"filesystem": {"denyReed": []}},
        {"netwerk": {}},
    ],
)
def test_what_srt_means_and_we_do_not_have_is_an_error(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        srt.translate(settings)


def test_a_literal_path_is_not_a_pattern() -> None:
    found = srt.translate({"filesystem": {"denyRead": [{"path": "~/[x]/*.env", "literal": True}]}}).data
    assert found["filesystem"]["deny_read"] == ["~/[[]x]/[*].env"]


def test_what_goes_past_the_parent_proxy() -> None:
    asked = {"network": {"parentProxy": {"noProxy": "localhost, .corp.test,10.0.0.0/8,x.test:8080"}}}
    found = Config.read(srt.translate(asked).data).network.upstream_exceptions
    assert found[:5] == ["localhost", "*.localhost", "corp.test", "*.corp.test", "10.0.0.0/8"]
    assert found[5:] == ["x.test:8080", "*.x.test:8080"]
    every = {"network": {"parentProxy": {"noProxy": "*"}}}
    assert Config.read(srt.translate(every).data).network.upstream_exceptions == ["*"]


def test_what_is_not_to_be_terminated_is_never_inspected() -> None:
    hosts = ["*.example.com", "mtls.example.net", "db.example.org:5432"]
    excluded = ["pinned.example.com", "mtls.example.net", "elsewhere.org", "*.example.org"]
    asked = {"network": {"allowedDomains": hosts, "tlsTerminate": {"excludeDomains": excluded}}}
    network = srt.translate(asked).data["network"]
    more = ["tcp:pinned.example.com:443", "tcp:mtls.example.net:443", "tcp:db.example.org:5432"]
    assert network["allowed_hosts"] == [*hosts, *more] and network["intercept"]


def test_a_settings_file_is_recognised(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(SRT_SEED))
    found = resolve({}, project=str(project), config_file=str(file))
    assert found.config.filesystem.deny_write == ["./secrets", str(file)]


CREATE_SEED: dict[str, Any] = {
    "image": "standard",
    "resources": {"cpus": 2, "memory_mb": 1024, "timeout_seconds": 300},
    "network": {
        "allowed_hosts": ["api.openai.com", "*.amazonaws.com"],
        "block_private_ips": True,
        "secrets": {"OPENAI_API_KEY": {"value": "sk-...", "hosts": ["api.openai.com"]}},
        "policy_script": "def is_allowed(host): return True",
    },
    "vfs": {
        "direct_mounts": {"/mnt/data": {"host_path": "/host/data", "readonly": True}},
        "mounts": {
            "/workspace": {"type": "memory"},
            "/config": {"type": "real_fs", "host_path": "/etc/app", "readonly": True},
            "/output": {
                "type": "overlay",
                "upper": {"type": "memory"},
                "lower": {"type": "real_fs", "host_path": "/base"},
            },
        },
    },
    "env": {"OPENAI_API_KEY": "${OPENAI_API_KEY}"},
}


def test_create_parameters_of_the_seed() -> None:
    assert create.spoken(CREATE_SEED)
    config = Config.read(create.translate(CREATE_SEED).data)
    assert (config.limits.cpus, config.limits.memory, config.limits.timeout) == (2.0, 2**30, 300.0)
    assert config.environment.set == {"OPENAI_API_KEY": "${OPENAI_API_KEY}"}
    assert config.network.secrets["OPENAI_API_KEY"].hosts == ["api.openai.com"]
    assert config.vfs.mounts["/output"].lower == {"type": "real_fs", "host_path": "/base"}
    assert config.vfs.direct_mounts["/mnt/data"].readonly


def test_create_refuses_unknown_resources_and_keeps_our_own_sections() -> None:
    with pytest.raises(ConfigError, match=r"resources: unknown key 'memory'; did you mean 'memory_mb'"):
        create.translate({"resources": {"memory": 1}})
    data = create.translate({"env": {"A": "b"}, "environment": {"block": ["C"]}, "mode": "max"}).data
    assert data == {"environment": {"set": {"A": "b"}, "block": ["C"]}, "mode": "max"}


def test_manager_config_of_the_seed() -> None:
    given: dict[str, Any] = {
        "mode": "standard",
        "image": "node:22",
        "containerPrefix": "milady",
        "workdir": "/workspace",
        "readOnlyRoot": True,
        "network": "none",
        "user": "1000:1000",
        "capDrop": ["ALL"],
        "env": {"NODE_ENV": "production"},
        "memory": "512m",
        "cpus": 1.5,
        "pidsLimit": 128,
        "workspaceRoot": "/srv/work",
        "binds": ["/data:/data:ro", "/out:/out"],
        "dns": [],
        "engineType": "apple-container",
        "browser": {"enabled": False, "image": "chromium:1", "headless": True, "cdpPort": 9222},
    }
    config = Config.read(manager.translate(given).data)
    assert (config.mode, config.image, config.engine) == ("standard", "node:22", "apple-container")
    assert (config.limits.memory, config.limits.cpus, config.limits.pids) == (512 * 2**20, 1.5, 128)
    assert config.filesystem.root == "/srv/work"
    assert config.network.allowed_hosts == []
    assert config.vfs.direct_mounts["/data"].readonly
    assert not config.vfs.direct_mounts["/out"].readonly
    assert config.vfs.direct_mounts["/workspace"].host_path == "/srv/work"
    assert config.environment.set == {"NODE_ENV": "production"}
    assert (config.container_prefix, config.user) == ("milady", "user")
    assert (config.browser.enabled, config.browser.image, config.browser.cdp_port) == (False, "chromium:1", 9222)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("containerPrefix", ["", "-x", "a b", "a" * 64, "x\n", 5]),
        ("user", [0, "", "1:2:3", "a b", "--privileged"]),
        ("readOnlyRoot", ["yes", 1]),
        ("cpus", ["2", True, [2], {}]),
        ("capDrop", ["ALL", [1], {}]),
        ("dns", ["192.0.2.1", [1], {}, ["192.0.2.1"]]),
    ],
)
def test_a_managers_field_of_the_wrong_form_is_an_error_also_where_it_changes_nothing(
    field: str, wrong: list[Any]
) -> None:
    for value in wrong:
        with pytest.raises(ConfigError) as problem:
            Config.read(manager.translate({field: value}).data)
        assert problem.value.path in (field, "container_prefix")


@pytest.mark.parametrize(("given", "user"), [("0", "root"), ("0:0", "root"), ("root", "root"), ("1000:1000", "user")])
def test_a_managers_user_is_root_or_the_ordinary_one(given: str, user: str) -> None:
    assert Config.read(manager.translate({"user": given}).data).user == user


def test_manager_refuses_the_hosts_network_and_unknown_keys() -> None:
    with pytest.raises(ConfigError, match="every connection goes through the gate"):
        manager.translate({"mode": "standard", "network": "host"})
    with pytest.raises(ConfigError, match="unknown key 'memroy'; did you mean 'memory'"):
        manager.translate({"mode": "standard", "memroy": "1g"})


def test_a_managers_sandbox_without_network_has_none_whatever_the_layers_below_allow(project: Path) -> None:
    Path(user_config_file()).parent.mkdir(parents=True, exist_ok=True)
    Path(user_config_file()).write_text(
        "network: {preset: open, ask: true, policy_script: x.star, unix_sockets: [/run/x], localhost_ports: [80],"
        " http: {allow: ['GET a.example/x']}}\n"
    )
    network = resolve(manager.translate({"network": "none"}).data, project=str(project)).config.network
    assert (network.policy_script, network.ask, network.unix_sockets) == (None, False, [])
    policy = NetworkPolicy(network)
    assert not policy.connect("a.example", 443)
    assert not policy.connect("host.sandbox.internal", 80)


@pytest.mark.parametrize(
    "credentials",
    [{"files": [{"path": "~/.netrc", "mode": "mask"}]}, {"envVars": [{"name": "SOME_NAME", "mode": "mask"}]}],
)
@pytest.mark.parametrize("way", ["file", "client", "library"])
def test_what_srt_would_mask_is_not_shown_where_masks_do_not_work(
    project: Path, credentials: dict[str, Any], way: str
) -> None:
    asked = {"network": {"allowedDomains": ["a.example"]}, "credentials": credentials}
    (project / "settings.json").write_text(json.dumps(asked))
    with pytest.raises(ConfigError, match="mask") as problem:
        if way == "file":
            resolve({}, project=str(project), config_file=str(project / "settings.json"))
        elif way == "client":
            from_client(asked)
        else:
            read_config(asked)
    assert "credentials." in str(problem.value)


def test_variables_in_both_spellings_of_create_are_all_set() -> None:
    data = create.translate({"env": {"A": "1", "B": "1"}, "environment": {"set": {"B": "2", "C": "2"}}}).data
    assert data == {"environment": {"set": {"A": "1", "B": "2", "C": "2"}}}


def test_what_srts_credentials_deny_stays_denied_beside_a_list_of_our_own() -> None:
    asked = {
        "network": {"allowedDomains": ["a.example"]},
        "credentials": {"envVars": [{"name": "NPM_TOKEN", "mode": "deny"}]},
        "environment": {"block": ["OTHER"]},
    }
    assert from_client(asked)["environment"]["block"] == ["NPM_TOKEN", "OTHER"]
