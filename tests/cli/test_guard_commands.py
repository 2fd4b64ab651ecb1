"""`sandbox config`, `agent`, `why`, `log`, as a person uses them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandbox.audit.record import Record

pytestmark = pytest.mark.walls


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.delenv("LANGUAGE", raising=False)
    monkeypatch.delenv("LC_ALL", raising=False)
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def sandbox(*words: str, cwd: Path, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandbox", *words], cwd=cwd, input=input, capture_output=True, text=True, check=False
    )


# -- config


def test_config_set_get_and_show_with_the_layer(project: Path) -> None:
    assert sandbox("config", "--global", "set", "limits.memory", "2g", cwd=project).returncode == 0
    assert sandbox("config", "set", "limits.memory", "1g", cwd=project).returncode == 0
    assert sandbox("config", "get", "limits.memory", cwd=project).stdout == f"{2**30}\n"
    assert sandbox("config", "get", "limits.memory", "--global", cwd=project).stdout == f"{2**31}\n"
    shown = sandbox("config", "show", cwd=project).stdout
    line = next(line for line in shown.splitlines() if line.startswith("limits.memory"))
    assert line.endswith(f"project ({project}/.sandbox/config.yaml:2)")
    listed = json.loads(sandbox("config", "list", "--json", cwd=project).stdout)
    assert list(listed["settings"]) == ["limits.memory"]


def test_the_seeds_spelling_and_comments_survive(project: Path) -> None:
    home = project.parent / "home"
    home.mkdir()
    (home / "config.yaml").write_text("# mine\nmode: light  # for now\n")
    done = sandbox("configure", "--global", "set", "sandbox.enabled", "true", cwd=project)
    assert done.returncode == 0
    assert (home / "config.yaml").read_text() == "# mine\nmode: light  # for now\nenabled: true\n"
    sandbox("configure", "--global", "set", "sandbox.network.allow-git", "false", cwd=project)
    assert "allow_git: false" in (home / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["netwrk.x", "1"], "unknown key 'netwrk'; did you mean 'network'?"),
        (["limits.memory", "lots"], "limits.memory: must be a size such as 512m"),
        (["mode", "strong"], "mode: must be one of off, light, standard, max"),
        (["filesystem.blocked_patterns", "['!x']"], "put exceptions in allowed_patterns"),
        (["network.allowed_hosts", "['http://x.org/']"], "network.allowed_hosts[0]: "),
        (["network.http.deny", "[everything]"], "network.http.deny[0]: 'everything': must be a method"),
        (["network.publish", "[door]"], "network.publish: 'door': write address:port:sandbox_port"),
        (["network.upstream_proxy", "ftp://x"], "network.upstream_proxy: must be http://host:port"),
        (["network.localhost_ports", "[70000]"], "network.localhost_ports: 70000 is not a port"),
        (["filesystem.allow_read", "[/nowhere/at/all]"], "filesystem.allow_read: '/nowhere/at/all' does not exist"),
        (["filesystem.root", "nowhere"], "filesystem.root: 'nowhere' is not a directory"),
        (["tools.allowed", "['Bash(']"], "Bash("),
        (["limits.memory", "1k"], "the minimum is 8m"),
        (["vfs.mounts", "{x: {type: memory}}"], "must be an absolute path"),
    ],
)
def test_a_wrong_setting_is_not_written(project: Path, words: list[str], message: str) -> None:
    done = sandbox("config", "set", *words, cwd=project)
    assert done.returncode != 0
    assert message in done.stderr
    assert "was not changed" in done.stderr or "did you mean" in done.stderr
    assert not (project / ".sandbox").exists()
    if words[1].startswith("["):
        assert message in sandbox("config", "add", *words, cwd=project).stderr
        assert not (project / ".sandbox").exists()


def test_unset_takes_one_setting_out_and_leaves_the_rest(project: Path) -> None:
    file = project.parent / "home" / "config.yaml"
    file.parent.mkdir()
    file.write_text(
        "# mine\nmode: light  # for now\nlimits:\n  memory: 1g\n  # few\n  pids: 5\nnetwork: {intercept: true}\n"
    )
    assert sandbox("config", "--global", "unset", "limits.memory", cwd=project).returncode == 0
    assert (
        file.read_text() == "# mine\nmode: light  # for now\nlimits:\n  # few\n  pids: 5\nnetwork: {intercept: true}\n"
    )
    assert sandbox("config", "get", "limits.memory", cwd=project).stdout == "null\n"
    sandbox("config", "unset", "network.intercept", "--global", cwd=project)
    assert file.read_text() == "# mine\nmode: light  # for now\nlimits:\n  # few\n  pids: 5\n"
    again = sandbox("config", "--global", "unset", "network.intercept", cwd=project)
    assert (again.returncode != 0, "is not set in this file" in again.stderr) == (True, True)
    assert "did you mean 'mode'" in sandbox("config", "unset", "mod", cwd=project).stderr


def test_off_is_a_mode_in_a_file_and_on_the_command_line(project: Path) -> None:
    assert sandbox("config", "--global", "set", "mode", "off", cwd=project).returncode == 0
    assert sandbox("config", "get", "mode", cwd=project).stdout == "off\n"
    (project.parent / "home" / "config.yaml").write_text("mode: off\n")
    assert sandbox("config", "get", "mode", cwd=project).stdout == "off\n"


def test_one_entry_is_a_list_and_more_can_be_added(project: Path) -> None:
    sandbox("config", "--global", "set", "network.allowed_hosts", "a.example", cwd=project)
    done = sandbox("config", "--global", "add", "network.allowed_hosts", "b.example", "[a.example]", cwd=project)
    assert done.returncode == 0
    assert sandbox("config", "get", "network.allowed_hosts", cwd=project).stdout == '["a.example", "b.example"]\n'
    sandbox("config", "--global", "add", "filesystem.allowed_patterns", ".env", cwd=project)
    held = json.loads(sandbox("config", "get", "filesystem.allowed_patterns", cwd=project).stdout)
    assert {".env", ".env.example"} < set(held), "what is built in stays"
    assert "is not a list" in sandbox("config", "--global", "add", "mode", "max", cwd=project).stderr


def test_a_number_that_is_meant_as_text_needs_no_quotes(project: Path) -> None:
    for words in (["add", "network.publish", "8080", "8081:50"], ["set", "environment.set.PORT", "8080"]):
        done = sandbox("config", "--global", *words, cwd=project)
        assert done.returncode == 0, done.stderr
    assert sandbox("config", "get", "network.publish", cwd=project).stdout == '["8080", "8081:50"]\n'


@pytest.mark.parametrize(
    ("question", "option"),
    [
        (["--host", "x.example"], "--allow-host x.example"),
        (["--path", "/opt/data"], "--ro /opt/data"),
        (["--write", "--path", "/opt/data"], "--rw /opt/data"),
    ],
)
def test_why_names_the_option_that_allows_it_for_one_run(project: Path, question: list[str], option: str) -> None:
    assert f"  or       {option}, for one run" in sandbox("why", *question, cwd=project).stdout


@pytest.mark.parametrize(
    ("preset", "host", "answer"),
    [
        ("registries", "pypi.org", "pypi.org:443 is one of the hosts of the network preset registries"),
        ("open", "x.example", "the network preset open"),
    ],
)
def test_why_explains_a_run_with_a_network_preset(project: Path, preset: str, host: str, answer: str) -> None:
    assert sandbox("why", "--host", host, cwd=project).returncode == 1
    done = sandbox("why", "--network", preset, "--host", host, cwd=project)
    assert done.returncode == 0
    assert answer in done.stdout
    with_profile = sandbox("why", "--profile", "claude", "--network", preset, "--host", host, cwd=project)
    assert answer in with_profile.stdout


def test_what_why_proposes_works(project: Path) -> None:
    for question in (["--host", "x.example"], ["--path", ".env"], ["--env", "AWS_PROFILE"]):
        told = sandbox("why", *question, cwd=project).stdout
        proposed = told.partition("change   sandbox ")[2].partition("\n")[0].split()
        assert sandbox(*proposed, cwd=project).returncode == 0
        assert sandbox("why", *question, cwd=project).returncode == 0


def test_a_config_file_of_another_kind_is_an_error(project: Path) -> None:
    (project.parent / "home" / "config.yaml").mkdir(parents=True)
    assert "config.yaml: is not a regular file" in sandbox("run", "true", cwd=project).stderr
    (project.parent / "home" / "config.yaml").rmdir()
    (project.parent / "home" / "config.yaml").write_text("network: {allowed_hosts: x.example}\n")
    assert "must be a list: write [ ] around a single entry" in sandbox("run", "true", cwd=project).stderr
    (project.parent / "home" / "config.yaml").write_text("environment: {set: {PORT: 80}}\n")
    assert "must be a string: write it in quotes" in sandbox("run", "true", cwd=project).stderr


def test_a_project_setting_that_would_loosen_is_warned_about(project: Path) -> None:
    done = sandbox("config", "set", "network.allowed_hosts", "[evil.org]", cwd=project)
    assert "ignored, because a project file may only tighten" in done.stderr
    ran = sandbox("run", "--", "true", cwd=project)
    assert "ignored, because a project file may only tighten" in ran.stderr
    blocked = sandbox("audit", "--blocked-only", "--json", cwd=project).stdout
    assert json.loads(blocked)["policy"] == "project-only-tightens"


def test_the_schema_is_printed(project: Path) -> None:
    assert json.loads(sandbox("config", "schema", cwd=project).stdout)["title"] == "sandbox configuration"


def test_help_of_a_command_in_both_orders(project: Path) -> None:
    assert sandbox("help", "run", cwd=project).stdout == sandbox("run", "--help", cwd=project).stdout
    assert "usage: sandbox config set [-h]" in sandbox("config", "set", "--help", cwd=project).stdout


# -- agents


def agent(project: Path, name: str, front: str) -> None:
    (project / ".claude" / "agents").mkdir(parents=True, exist_ok=True)
    (project / ".claude" / "agents" / f"{name}.md").write_text(f"---\nname: {name}\n{front}\n---\nBe {name}.\n")


def test_agents_are_listed_with_what_their_tools_mean(project: Path) -> None:
    agent(project, "reader", "allowed-tools: Read\ndescription: reads")
    agent(project, "writer", "allowed-tools: Read, Write, WebFetch")
    rows = json.loads(sandbox("agent", "list", "--json", cwd=project).stdout)
    assert [(row["name"], row["read_only"], row["no_network"]) for row in rows] == [
        ("reader", True, True),
        ("writer", False, False),
    ]
    assert "read-only" in sandbox("agent", "list", cwd=project).stdout


def test_an_agent_runs_by_the_users_runner_and_is_named_in_the_record(project: Path) -> None:
    agent(project, "reader", "allowed-tools: Read")
    runner = "[sh, -c, 'echo $SANDBOX_AGENT {prompt}; echo x > new; exit 4']"
    sandbox("config", "--global", "set", "agents.runner", runner, cwd=project)
    done = sandbox("agent", "run", "reader", cwd=project)
    assert (done.returncode, done.stdout) == (4, "reader Be reader.\n")
    assert not (project / "new").exists()
    assert "exec sh" in sandbox("audit", "--agent", "reader", cwd=project).stdout


def test_an_agent_that_may_write_writes(project: Path) -> None:
    agent(project, "writer", "allowed-tools: Write\ncommand: touch new")
    assert sandbox("agent", "run", "writer", cwd=project).returncode == 0
    assert (project / "new").exists()


def test_no_sandbox_needs_the_users_own_file(project: Path) -> None:
    agent(project, "a", "command: echo")
    sandbox("config", "set", "agents.allow_no_sandbox", "true", cwd=project)
    done = sandbox("agent", "run", "a", "--no-sandbox", "--", "hello", cwd=project)
    assert done.returncode != 0
    assert "--no-sandbox is not allowed" in done.stderr
    sandbox("config", "--global", "set", "agents.allow_no_sandbox", "true", cwd=project)
    done = sandbox("agent", "run", "a", "--no-sandbox", "--", "hello", cwd=project)
    assert "has no command" in done.stderr  # the project's own command never runs on the host
    sandbox("config", "--global", "set", "agents.runner", "[cat, /etc/hostname]", cwd=project)
    done = sandbox("agent", "run", "a", "--no-sandbox", cwd=project)
    assert (done.returncode, done.stdout) == (0, Path("/etc/hostname").read_text())
    log = sandbox("audit", "--type", "sandbox_mode_transition", cwd=project).stdout
    assert "agent a runs on the host (--no-sandbox)" in log


@pytest.mark.parametrize("file", [".sandbox/agents/rev.md", ".sandbox/agents/zzz.md"])
def test_a_tenant_frees_no_agent_of_its_restrictions_by_a_second_file(project: Path, file: str) -> None:
    agent(project, "rev", "allowed-tools: Read\ncommand: touch made")
    agent(project, "other", "command: echo runs")
    freed = "---\nname: rev\nallowed-tools: *\ncommand: touch made\n---"
    planted = sandbox("run", "--", "sh", "-c", f"mkdir -p {Path(file).parent} && echo '{freed}' > {file}", cwd=project)
    assert planted.returncode == 0
    assert sandbox("agent", "run", "rev", cwd=project).returncode != 0
    assert not (project / "made").exists()
    assert sandbox("agent", "run", "other", cwd=project).stdout == "runs\n"


def test_an_agent_without_network_tools_reaches_nothing_that_the_user_opened_for_others(project: Path) -> None:
    agent(project, "reader", "allowed-tools: Read")
    agent(project, "browser", "allowed-tools: Read, WebFetch")
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{short}/s")
        listening.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({short!r} + '/s'); print('connected')"
        sandbox("config", "--global", "set", "agents.runner", json.dumps(["python3", "-c", code]), cwd=project)
        sandbox("config", "--global", "set", "network.unix_sockets", json.dumps([f"{short}/s"]), cwd=project)
        assert sandbox("agent", "run", "browser", cwd=project).stdout == "connected\n"
        refused = sandbox("agent", "run", "reader", cwd=project)
    assert refused.returncode != 0
    assert refused.stdout == ""


def test_a_missing_agent_is_said(project: Path) -> None:
    assert "no agent 'x'" in sandbox("agent", "run", "x", cwd=project).stderr


# -- why


@pytest.mark.parametrize(
    ("words", "status", "parts"),
    [
        (
            ["--path", ".env"],
            1,
            [".env: blocked", "Matches blocked pattern: .env", "filesystem.blocked_patterns built-in"],
        ),
        (["--path", "src/x", "--write"], 0, ["src/x: allowed"]),
        (["--path", "~/.ssh/id_rsa"], 1, ["Outside project root", "sandbox config --global add filesystem.allow_read"]),
        (["--path", ".git/hooks/x", "--write"], 1, ["Programs on the host act", "cannot be changed"]),
        (["--env", "AWS_SECRET"], 1, ["Looks like a secret"]),
        (["--env", "NODE_ENV"], 0, ["NODE_ENV: allowed"]),
        (["--tool", "Bash(git push)"], 0, ["Bash(git push): allowed"]),
    ],
)
def test_why_shows_decision_rule_layer_and_remedy(
    project: Path, words: list[str], status: int, parts: list[str]
) -> None:
    done = sandbox("why", *words, cwd=project)
    assert done.returncode == status, done.stderr
    for part in parts:
        assert part in done.stdout


def test_why_names_the_agents_file(project: Path) -> None:
    agent(project, "reader", "allowed-tools: Read")
    assert "allowed-tools ./.claude/agents/reader.md" in (
        sandbox("why", "--tool", "Write", "--agent", "reader", cwd=project).stdout
    )


def test_why_follows_a_link(project: Path) -> None:
    (project / ".env").write_text("x")
    (project / "innocent").symlink_to(".env")
    assert "blocked" in sandbox("why", "--path", "innocent", cwd=project).stdout


def test_why_names_the_users_line(project: Path) -> None:
    sandbox("config", "--global", "set", "tools.disallowed", "[Write]", cwd=project)
    told = json.loads(sandbox("why", "--tool", "Write", "--json", cwd=project).stdout)
    assert told["origin"] == f"user ({project.parent}/home/config.yaml:2)"
    assert told["rule"] == "tools.disallowed"


# -- log


def test_log_filters_and_escapes(project: Path) -> None:
    record = Record(str(project.parent / "home" / "audit"), sandbox="vm-11", agent="a")
    record.write("policy_decision", "x", operation="read", target="./\x1b[31mred\n", result="blocked", reason="r")
    record.write("sandbox_lifecycle", "ready", severity="error")
    record.close()
    shown = sandbox("audit", cwd=project).stdout
    assert "\x1b" not in shown
    assert "read ./\\x1b[31mred\\n (r)" in shown
    assert len(sandbox("audit", "--blocked-only", cwd=project).stdout.splitlines()) == 1
    assert "ready" in sandbox("audit", "--severity", "warn", cwd=project).stdout
    assert sandbox("audit", "--agent", "b", cwd=project).stdout == ""
    assert sandbox("audit", "--sandbox", "vm-1", "--since", "1h", cwd=project).stdout.count("\n") == 2
    assert sandbox("audit", "--since", "2999-01-01", cwd=project).stdout == ""
    assert "neither a time nor" in sandbox("audit", "--since", "soon", cwd=project).stderr


def test_log_verify_points_at_the_line(project: Path) -> None:
    record = Record(str(project.parent / "home" / "audit"))
    for number in range(5):
        record.write("policy_decision", f"entry {number}")
    record.close()
    assert sandbox("audit", "verify", cwd=project).stdout == "5 entries; none altered, removed or moved\n"
    file = project.parent / "home" / "audit" / "audit.jsonl"
    file.write_text(file.read_text().replace("entry 2", "entry X"))
    done = sandbox("audit", "verify", cwd=project)
    assert done.returncode == 1
    assert f"{file}:3: the line was altered" in done.stdout


def test_log_follow_prints_what_comes(project: Path) -> None:
    directory = str(project.parent / "home" / "audit")
    record = Record(directory, rotate_size=300)
    record.write("policy_decision", "before")
    following = subprocess.Popen(
        [sys.executable, "-u", "-m", "sandbox", "audit", "--follow", "--json"],
        cwd=project, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert following.stdout is not None
    assert json.loads(following.stdout.readline())["summary"] == "before"
    record.write("policy_decision", "after")
    assert json.loads(following.stdout.readline())["summary"] == "after"
    record.write("policy_decision", "in the next file")
    assert json.loads(following.stdout.readline())["summary"] == "in the next file"
    following.terminate()
    following.wait()
    following.stdout.close()


def test_an_alias_works_and_is_not_listed_beside_its_command(project: Path) -> None:
    listed = [line.split()[0] for line in sandbox("--help", cwd=project).stdout.splitlines() if line.startswith("  ")]
    assert {"audit", "logs", "config"} <= set(listed) and not {"log", "configure"} & set(listed)
    for alias, command in (("log", "audit"), ("configure", "config")):
        assert sandbox(alias, "--help", cwd=project).stdout == sandbox(command, "--help", cwd=project).stdout
        assert sandbox("help", alias, cwd=project).stdout == sandbox("help", command, cwd=project).stdout
