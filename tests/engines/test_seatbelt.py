"""The Seatbelt profile, as text: it cannot be run here. `UPDATE_GOLDEN=1` writes the golden files anew."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.config.model import Config
from sandbox.engines.seatbelt_profile import arguments, profile, proxy_environment, ssh_proxy_script
from tests.network.room import echo
from tests.network.test_proxy import Proxy

GOLDEN = Path(__file__).parent / "golden"
PROTECTED = (".git/hooks/", ".git/config", ".bashrc", ".vscode/")

# Written out: what is built in may change, these texts should not for that.
PATTERNS = {"blocked_patterns": [".env", ".env.*", ".ssh/"], "allowed_patterns": [".env.example"]}

CONFIGS: dict[str, dict[str, object]] = {
    "default": {"filesystem": PATTERNS},
    "everything": {
        "filesystem": {
            "allow_read": ["~/datasets", "/tmp/shared"],
            "allow_write": ["~/out put"],
            "deny_read": ["~/datasets/private", "/Users/ann"],
            "deny_write": ["./dist"],
            "blocked_patterns": [".env", "*.pem", ".aws/", "secrets/**/key?.txt"],
            "allowed_patterns": ["test.pem", "**/fixtures/**"],
        },
        "network": {"allowed_hosts": ["api.example.com"], "localhost_ports": [5432], "publish": ["8080:80"]},
    },
    "read-only": {"filesystem": {"read_only": True, **PATTERNS}, "network": {"allow_localhost": False}},
}


def text(name: str) -> str:
    return profile(
        Config.read(CONFIGS[name]),
        root="/Users/ann/project",
        home="/Users/ann",
        scratch="/var/folders/xx/sandbox-1",
        proxy_port=49152,
        protected=PROTECTED,
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_becomes_the_profile_we_know(name: str) -> None:
    file = GOLDEN / f"seatbelt-{name}.sb"
    if "UPDATE_GOLDEN" in os.environ:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text(name))
    assert text(name) == file.read_text()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_profile_denies_by_default_and_its_parentheses_match(name: str) -> None:
    lines = text(name)
    assert lines.startswith("(version 1)\n(deny default")
    bare = re.sub(r'#?"(?:\\.|[^"\\])*"', "", re.sub(r"(?m)^;.*$", "", lines))
    depth = 0
    for letter in bare:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0


def test_the_gate_is_the_only_way_out() -> None:
    outgoing = re.findall(r"\(allow network-outbound(.*?)\)\)", text("default"), re.S)
    assert [one.strip() for one in outgoing] == ['(remote ip "localhost:49152"']
    assert "unix-socket" not in text("default") and "network*" not in text("default")


def test_refusals_come_after_permissions_because_the_last_rule_wins() -> None:
    lines = text("everything")
    order = [
        '(deny file-read* file-write* (subpath "/Users/ann"))',
        '(allow file-read* (subpath "/Users/ann/datasets"))',
        '(allow file-read* file-write* (subpath "/Users/ann/project"))',
        '(deny file-read* file-write* (subpath "/Users/ann/datasets/private"))',
        "; secrets",
        "; never changed",
    ]
    assert [lines.index(one) for one in order] == sorted(lines.index(one) for one in order)


def expressions(name: str, heading: str) -> list[re.Pattern[str]]:
    block = text(name).split(f"; {heading}\n")[1].split("\n; ")[0].split("(require-not")[0]
    return [re.compile(one) for one in re.findall(r'\(regex #"(.*?)"\)', block)]


def test_an_exception_from_a_pattern_permits_nothing_by_itself() -> None:
    assert not re.search(r"\(allow [^;]*?regex", text("everything"))
    assert re.search(r"\(require-not \(require-any \(regex #\"/\[tT\]", text("everything"))


@pytest.mark.parametrize(
    ("path", "blocked"),
    [
        ("/Users/ann/project/.env", True),
        ("/Users/ann/project/deep/er/.ENV", True),
        ("/Users/ann/project/.environment", False),
        ("/Users/ann/project/keys/server.pem", True),
        ("/Users/ann/project/server.pem.txt", False),
        ("/Users/ann/.aws/credentials", True),
        ("/Users/ann/project/secrets/a/b/key1.txt", True),
        ("/Users/ann/project/secrets/key1.txt", True),
        ("/Users/ann/project/secrets/key12.txt", False),
    ],
)
def test_patterns_cover_what_they_say_in_every_case_of_letters(path: str, blocked: bool) -> None:
    assert any(one.search(path) for one in expressions("everything", "secrets")) is blocked


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".git/config", "sub/.git/hooks/x", ".BASHRC", ".vscode/a"])
def test_what_the_host_runs_later_cannot_be_changed(path: str) -> None:
    found = expressions("default", "never changed")
    assert any(one.search(f"/Users/ann/project/{path}") for one in found)


def test_a_path_cannot_break_out_of_its_string() -> None:
    made = profile(
        Config(), root='/Users/a"b\\c', home="/Users/ann", scratch="/tmp/s", proxy_port=1, protected=PROTECTED
    )
    assert '(subpath "/Users/a\\"b\\\\c")' in made
    with pytest.raises(ValueError, match="control characters"):
        profile(Config(), root="/Users/a\nb", home="/h", scratch="/tmp/s", proxy_port=1)


def test_the_command_is_handed_over_as_words() -> None:
    assert arguments("(version 1)", ["echo", "a b", "-p"]) == [
        "/usr/bin/sandbox-exec", "-p", "(version 1)", "--", "echo", "a b", "-p",
    ]  # fmt: skip


def test_programs_learn_of_the_gate_from_their_environment() -> None:
    found = proxy_environment(49152, "t0ken", "/scratch/ssh-proxy")
    assert found["HTTPS_PROXY"] == found["https_proxy"] == "http://sandbox:t0ken@127.0.0.1:49152"
    assert found["ALL_PROXY"] == "socks5h://sandbox:t0ken@127.0.0.1:49152"
    assert "/scratch/ssh-proxy %h %p" in found["GIT_SSH_COMMAND"]


@pytest.fixture
def gate() -> Iterator[Proxy]:
    network: dict[str, object] = {"allowed_hosts": ["git.test", "127.0.0.1"]}
    one = Proxy({"git.test": ["127.0.0.1"]}, network, proxy_token="t0ken")
    yield one
    one.watch.close()


def test_ssh_goes_through_the_gate(gate: Proxy, listener: object, tmp_path: Path) -> None:
    port = listener(echo).port  # type: ignore[operator]
    script = tmp_path / "ssh-proxy"
    script.write_text(ssh_proxy_script(gate.port, "t0ken"))
    script.chmod(0o700)
    pipe = subprocess.PIPE
    with subprocess.Popen([script, "git.test", str(port)], stdin=pipe, stdout=pipe, bufsize=0) as running:
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write(b"SSH-2.0-x\r\n")
        assert running.stdout.readline() == b"SSH-2.0-x\r\n"
        running.stdin.close()
        assert running.wait(20) == 0
    done = subprocess.run([script, "evil.test", "22"], input=b"", capture_output=True, timeout=20)
    assert done.returncode == 1 and done.stdout == b""


@pytest.mark.parametrize(
    ("pattern", "path", "blocked"),
    [
        (".env[12]", ".env1", True),
        (".env[12]", ".env3", False),
        (".env[a-c]", ".envB", True),
        (".env[a-c]", ".envd", False),
        (".env[!1]", ".env2", True),
        (".env[!1]", ".env1", False),
        ("key[!a-c].x", "keyB.x", False),
        ("key[!a-c].x", "keyd.x", True),
        ("key[.-]x", "key.x", True),
        ("key[.-]x", "keyax", False),
        (r"key\*", "key*", True),
        (r"key\*", "keys", False),
        (r"\[x]", "[x]", True),
        ("key[", "key[", True),
    ],
)
def test_a_pattern_blocks_what_it_blocks_on_linux(pattern: str, path: str, blocked: bool) -> None:
    from sandbox.config.patterns import Pattern

    config = Config.read({"filesystem": {"blocked_patterns": [pattern]}})
    lines = profile(config, root="/Users/ann/project", home="/Users/ann", scratch="/tmp/s", proxy_port=1)
    found = re.findall(r'\(regex #"(.*?)"\)', lines.split("; secrets\n")[1].split("\n; ")[0])
    assert any(re.search(one, f"/Users/ann/project/{path}") for one in found) is blocked
    assert Pattern(pattern).matches(path.lower(), path.lower()) is blocked


def test_what_is_refused_through_a_link_is_refused_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    config = Config.read(
        {"filesystem": {"deny_read": [str(tmp_path / "link")], "allow_write": [str(tmp_path / "link")]}}
    )
    lines = profile(config, root="/Users/ann/project", home="/Users/ann", scratch="/tmp/s", proxy_port=1)
    there = re.escape(os.path.realpath(tmp_path / "there"))
    assert re.search(rf'\(deny file-read\* file-write\* \(subpath "(/private)?{there}"\)\)', lines)
    assert not re.search(rf'\(allow [^\n]*"(/private)?{there}"', lines)
