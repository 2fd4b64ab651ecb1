"""UDS's acceptance criteria and user stories, one by one, in a real sandbox."""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.audit.reading import entries, verify
from sandbox.config.layers import resolve
from tests.config.dialects.test_dialects import AC_6

pytestmark = pytest.mark.walls

HOME = os.path.realpath(os.path.expanduser("~"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    return project


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "sandbox-home"
    monkeypatch.setenv("SANDBOX_HOME", str(home))
    return home


def command(*words: str, cwd: Path, **more: object) -> subprocess.CompletedProcess[str]:
    options: dict[str, object] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, **more}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "sandbox", *words], cwd=cwd, check=False, **options
    )


def write(project: Path, name: str, text: str = "content\n") -> Path:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text(text)
    return project / name


# -- user stories


def test_us_1_credential_protection(project: Path) -> None:
    write(project, ".env", "API_KEY=sk-very-secret\n")
    done = command("run", "--", "cat", ".env", cwd=project)
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr == "cat: .env: Permission denied\n"


def test_us_2_directory_isolation(tmp_path: Path, project: Path) -> None:
    other = write(tmp_path, "other-project/main.py")
    for path in (str(other), "../other-project/main.py", str(other.parent)):
        assert command("run", "--", "ls", path, cwd=project).returncode != 0, path
    assert command("run", "--", "ls", "..", cwd=project).stdout.split() == ["project"]


def test_us_3_tool_enforcement(project: Path) -> None:
    write(project, "main.py", "as it was")
    write(
        project,
        ".sandbox/agents/reader.md",
        "---\nname: reader\nallowed-tools: Read, Grep\ncommand: sh -c\n---\nYou read.\n",
    )
    attempt = "echo changed > main.py; rm main.py; touch new; mount -o remount,rw . ; ls"
    done = command("agent", "run", "reader", "--", attempt, cwd=project)
    assert "Read-only file system" in done.stderr
    assert (project / "main.py").read_text() == "as it was"
    assert sorted(os.listdir(project)) == [".sandbox", "main.py"]


# -- acceptance criteria


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("./file", True),
        ("./", True),
        ("~/.ssh", False),
        ("~/.aws", False),
        ("/etc/shadow", False),
        ("/etc/machine-id", False),
        ("/etc/ssh", False),
        ("../neighbour/file", False),
        ("../../..", None),
    ],
)
def test_ac_1_file_system_restrictions(project: Path, tmp_path: Path, path: str, allowed: bool | None) -> None:
    write(project, "file")
    write(tmp_path, "neighbour/file")
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        seen = sandbox.exec(f"test -d {path} && ls {path} || cat {path}")
        if allowed is None:  # the way up exists, with nothing on it but the way down
            assert "neighbour" not in seen.stdout
        else:
            assert (seen.exit_code == 0) is allowed


@pytest.mark.parametrize(
    "name",
    [
        ".env", ".env.production", "server.pem", "tls/private.key", "aws-credentials.json", "my.secret.yaml",
        ".aws/config", "home/.ssh/id_rsa", ".gnupg/secring", "a/b/c/d/e/.env", ".ENV", "Server.PEM",
    ],
)  # fmt: skip
def test_ac_2_sensitive_file_protection(project: Path, name: str) -> None:
    write(project, name, "top secret")
    write(project, ".env.example", "template")
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        seen = sandbox.exec(["cat", name])
        assert "Permission denied" in seen.stderr
        assert "top secret" not in seen.stdout
        assert sandbox.exec(["cat", ".env.example"]).stdout == "template"
        with pytest.raises(PermissionError):
            sandbox.read_file(name)


def test_ac_3_environment_variable_filtering(project: Path, home: Path) -> None:
    given = {
        **os.environ, "NODE_ENV": "test", "DEBUG": "1", "OPENAI_API_KEY": "planted-1", "X_SECRET": "planted-2",
        "NPM_TOKEN": "planted-3", "AWS_REGION": "planted-4", "GITHUB_ACTOR": "planted-5", "MINE_TOKEN": "wanted",
    }  # fmt: skip
    write(home, "config.yaml", "environment:\n  allow: [MINE_TOKEN]\n")
    everything = "env; cat /proc/self/environ /proc/1/environ /proc/*/environ /proc/*/cmdline 2>/dev/null"
    seen = command("run", "--", "sh", "-c", everything, cwd=project, env=given).stdout
    assert "planted" not in seen
    for line in ("NODE_ENV=test", "DEBUG=1", f"HOME={HOME}", "MINE_TOKEN=wanted", "TMPDIR=/tmp"):
        assert line in seen.splitlines(), line
    assert any(line.startswith("PATH=/") for line in seen.splitlines())
    assert any(line.startswith("USER=") for line in seen.splitlines())


def test_ac_4_tool_permission_enforcement(project: Path, home: Path) -> None:
    write(project, ".claude/agents/a.md", "---\nname: a\ndisallowed-tools: [Write, Edit]\n---\n")
    for tool in ("Write", "Edit"):
        call = json.dumps({"tool_name": tool, "tool_input": {"file_path": "x"}, "cwd": str(project)})
        done = command("hook", "pre-tool-use", "--agent", "a", cwd=project, stdin=None, input=call)
        answer = json.loads(done.stdout)["hookSpecificOutput"]
        assert answer["permissionDecision"] == "deny"
        assert f"The tool is disallowed: {tool}" in answer["permissionDecisionReason"]
    logged = [one for one in entries(str(home / "audit")) if one.get("result") == "blocked"]
    assert [(one["agent"], one["operation"], one["policy"]) for one in logged] == [
        ("a", "tool:Write", "tools.disallowed"),
        ("a", "tool:Edit", "tools.disallowed"),
    ]
    assert verify(str(home / "audit"))


FETCH = "import urllib.request; urllib.request.urlopen('http://203.0.113.7/', timeout=5)"
LOCAL = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"hello"), daemon=True).start()
print(socket.create_connection(server.getsockname()).recv(5).decode())
"""


def test_ac_5_network_restrictions(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        assert sandbox.exec(["/usr/bin/python3", "-c", FETCH], timeout=30).exit_code != 0
        assert sandbox.exec(["curl", "-sf", "https://example.com/"], timeout=30).exit_code == 22
        assert sandbox.exec(["/usr/bin/python3", "-c", LOCAL], timeout=30).stdout == "hello\n"


def test_ac_5_git_remote_operations_work_with_the_hosts_the_user_lists(project: Path, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    served = tmp_path / "served"
    write(served, "work/file")
    for words in (["init", "-q", "work"], ["-C", "work", "add", "."], ["-C", "work", "commit", "-qm", "one"],
                  ["clone", "-q", "--bare", "work", "repo.git"], ["-C", "repo.git", "update-server-info"]):  # fmt: skip
        subprocess.run([*git, *words], cwd=served, check=True)
    handler = functools.partial(Quiet, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        network = {"allowed_hosts": [f"git.test:{port}", "127.0.0.1"], "allow_git": True}
        config = {"filesystem": {"root": str(project)}, "network": network}
        with Sandbox(config, resolve=lambda host, port: ["127.0.0.1"]) as sandbox:
            cloned = sandbox.exec(f"git clone -q http://git.test:{port}/repo.git && cat repo/file", timeout=60)
            other = sandbox.exec(f"git ls-remote http://elsewhere.test:{port}/repo.git", timeout=60)
        server.shutdown()
    assert (cloned.exit_code, cloned.stdout) == (0, "content\n"), cloned.stderr
    assert other.exit_code != 0


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """A test has nothing to say while it goes well."""


def test_ac_6_sandbox_configuration(project: Path, home: Path) -> None:
    write(project, ".uds/config.yaml", AC_6)
    for name in (".env", "a/.env.local", "a/b/x.pem", "credentials.json", "deep/credentials"):
        write(project, name, "hidden")
    write(project, ".env.example", "template")
    given = {**os.environ, "NODE_ENV": "n", "CI": "1", "AWS_PROFILE": "planted", "GITHUB_TOKEN": "planted"}
    done = command("run", "--", "sh", "-c", "cat .env a/.env.local a/b/x.pem credentials.json deep/credentials; "
                   "cat .env.example; env; echo x > .uds/config.yaml", cwd=project, env=given)  # fmt: skip
    assert "hidden" not in done.stdout
    assert done.stderr.count("Permission denied") == 5
    assert "template" in done.stdout
    assert "planted" not in done.stdout
    assert "CI=1" in done.stdout.splitlines()
    assert "Read-only file system" in done.stderr
    assert resolve({}, project=str(project)).warnings == []


def test_sandbox_test_proves_the_seeds_own_configuration(project: Path, home: Path) -> None:
    write(project, ".uds/config.yaml", AC_6)
    done = command("test", "--json", cwd=project)
    told = json.loads(done.stdout)
    assert [one for one in told["tries"] if one["expected"] != one["seen"]] == []
    assert done.returncode == 0
    assert {one["kind"] for one in told["tries"]} == {"read", "write", "variable", "host", "tool"}
