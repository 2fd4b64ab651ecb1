"""`srt` as its users know it: options, settings, exit status, and what its sandbox refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli.srt import Options, read_settings
from sandbox.errors import ConfigError, SandboxError

pytestmark = pytest.mark.walls


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (tmp_path / "home").mkdir()
    return made


def srt(project: Path, *words: str, settings: object = None, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs srt in the project with a home of its own; `settings` become its default settings file."""
    home = project.parent / "home"
    if settings is not None:
        (home / ".srt-settings.json").write_text(settings if isinstance(settings, str) else json.dumps(settings))
    environment = {**os.environ, "HOME": str(home), "SANDBOX_HOME": str(home / ".sandbox")}
    argv = [sys.executable, "-m", "sandbox.cli.srt", *words]
    done = subprocess.run(argv, cwd=project, env=environment, capture_output=True, text=True, timeout=180, **more)
    print(done.returncode, done.stderr)  # shown when a test fails: there it says why
    return done


def test_the_exit_status_is_the_commands(project: Path) -> None:
    assert srt(project, "--", "true").returncode == 0
    assert srt(project, "sh", "-c", "exit 7").returncode == 7


def test_words_arrive_as_they_are(project: Path) -> None:
    assert srt(project, "printf", "%s|", "a b", "$HOME", "-d").stdout == "a b|$HOME|-d|"


def test_a_command_that_does_not_exist_is_127_and_one_that_cannot_be_run_126(project: Path) -> None:
    assert srt(project, "--", "/nonexistent").returncode == 127
    assert srt(project, "--", "/etc").returncode == 126
    assert srt(project, "-c", "/nonexistent").returncode == 127


def test_short_options_may_be_written_together(project: Path) -> None:
    (project / "s.json").write_text('{"filesystem": {"allowWrite": ["."]}}')
    done = srt(project, "-ss.json", "-dc", "touch made")
    assert done.returncode == 0 and (project / "made").exists() and "[SandboxDebug] Command string mode" in done.stderr


def test_debug_can_be_a_variable(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[SandboxDebug]" not in srt(project, "true").stderr
    monkeypatch.setenv("SRT_DEBUG", "1")
    assert "[SandboxDebug] Original command" in srt(project, "true").stderr


def test_a_string_is_for_the_shell(project: Path) -> None:
    assert srt(project, "-c", "echo one; echo two | tr o 0").stdout == "one\ntw0\n"
    assert srt(project, "echo a && echo b").stdout == "a\nb\n"


def test_input_and_output_are_the_callers(project: Path) -> None:
    done = srt(project, "-c", "cat; echo err >&2", input="through")
    assert (done.stdout, done.stderr) == ("through", "err\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "No command specified"),
        (["-d"], "No command specified"),
        (["-s"], "needs a value"),
        (["--frobnicate", "x"], "unknown option '--frobnicate'"),
        (["--control-fd", "2", "--", "true"], "3 or higher"),
        (["windows-install"], "Windows"),
        (["-s", "/nowhere/settings.json", "--", "true"], "does not exist"),
    ],
)
def test_mistakes_on_the_command_line_are_errors(project: Path, words: list[str], complaint: str) -> None:
    done = srt(project, *words)
    assert done.returncode == 1 and complaint in done.stderr and done.stderr.startswith("Error: ")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ("", "is empty"),
        ("{", "is not valid JSON"),
        ("[]", "must be a mapping"),
        ({"network": {"allowedDomain": []}}, "allowedDomain"),
        ({"network": {"allowedDomains": ["*"]}}, "network.allowedDomains"),
        ({"network": {"allowedDomains": ["https://x.com"]}}, "network.allowedDomains"),
        ({"network": {"mitmProxy": {"socketPath": "/x"}}}, "network.mitmProxy"),
        ({"filesystem": {"disabled": True}}, "filesystem.disabled"),
    ],
)
def test_an_invalid_settings_file_is_never_ignored(
    project: Path, settings: object, complaint: str
) -> None:
    done = srt(project, "--", "echo", "ran", settings=settings)
    assert done.returncode == 1 and done.stdout == ""
    assert complaint in done.stderr and ".srt-settings.json" in done.stderr


def test_without_settings_nothing_can_be_written(project: Path) -> None:
    assert srt(project, "-c", "touch x").returncode != 0
    assert not (project / "x").exists()


def test_what_may_be_written_is_what_was_named(project: Path) -> None:
    settings = {"filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": ["kept"]}}
    (project / "kept").write_text("old")
    assert srt(project, "-c", "echo new > made", settings=settings).returncode == 0
    assert (project / "made").read_text() == "new\n"
    assert srt(project, "-c", "echo new > kept", settings=settings).returncode != 0
    assert (project / "kept").read_text() == "old"


def test_a_path_that_may_not_be_read_is_not(project: Path) -> None:
    (project / "hidden").write_text("secret")
    settings = {"filesystem": {"denyRead": ["./hidden"], "allowWrite": ["."], "denyWrite": []}}
    done = srt(project, "-c", "cat hidden", settings=settings)
    assert done.returncode != 0 and "secret" not in done.stdout


def test_a_refused_host_is_reported_in_the_words_that_srts_users_look_for(project: Path) -> None:
    settings = {"network": {"deniedDomains": ["old.test"], "deniedDomainReasons": {"old.test": "use new.test"}}}
    done = srt(project, "-c", "curl -s http://evil.test/ http://old.test/", settings=settings)
    assert (
        "Connection blocked by network allowlist" in done.stdout
        and "old.test:80 is denied: use new.test" in done.stdout
    )
    assert "evil.test:80 is not allowed; to allow it, add 'evil.test' to network.allowedDomains" in done.stdout
    done = srt(project, "-c", "wget -qO- http://evil.test/", settings=settings)
    if done.returncode != 127:
        assert done.returncode != 0
    # A program that does not look at the answer must fail, as behind srt's proxy.
    assert srt(project, "-c", "curl -s https://evil.test/", settings=settings).returncode != 0


def test_a_host_that_is_not_listed_is_refused_and_debug_says_why(project: Path) -> None:
    done = srt(project, "-d", "-c", "curl -s http://evil.test/; curl -si http://192.0.43.8/", settings={})
    assert "403 Forbidden" in done.stdout and "X-Proxy-Error: blocked-by-allowlist" in done.stdout
    assert "[SandboxDebug] blocked tcp://evil.test:80" in done.stderr and "192.0.43.8:80 is not allowed" in done.stderr


def test_settings_on_the_control_descriptor_change_the_network(project: Path) -> None:
    reader, writer = os.pipe()
    lines = ["nonsense", "[" * 20_000, json.dumps({"network": {"allowedDomains": ["good.test"], "deniedDomains": []}})]
    os.write(writer, "".join(f"{line}\n" for line in lines).encode())
    wait = "until curl -s http://good.test/ | grep 'could not reach good.test'; do :; done"
    done = srt(project, "--control-fd", str(reader), "-c", wait, settings={}, pass_fds=(reader,))
    os.close(reader)
    os.close(writer)
    assert done.returncode == 0 and "good.test" in done.stdout
    assert "Invalid config on control fd" in done.stderr and "SandboxDebug" not in done.stderr


def test_updates_are_shown_with_debug(project: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b'nonsense\n{"network": {"allowedDomains": ["good.test"]}}\n')
    wait = "until curl -s http://good.test/ | grep -q 'could not reach good.test'; do :; done"
    done = srt(project, "-d", "--control-fd", str(reader), "-c", wait, settings={}, pass_fds=(reader,))
    os.close(reader)
    os.close(writer)
    assert "[SandboxDebug] Config updated from control fd: {" in done.stderr
    assert "[SandboxDebug] Invalid config on control fd (ignored): " in done.stderr


def test_the_command_cannot_read_the_control_descriptor(project: Path) -> None:
    reader, writer = os.pipe()
    done = srt(project, "--control-fd", str(reader), "-c", f"ls /proc/self/fd/{reader}", pass_fds=(reader,))
    os.close(reader)
    os.close(writer)
    assert done.returncode != 0


def test_help_and_version_are_shown(project: Path) -> None:
    assert "usage: srt" in srt(project, "--help").stdout
    assert srt(project, "--version").stdout.startswith("srt (agent-sandbox ")


def test_options_end_at_the_first_other_word() -> None:
    options = Options(["-d", "--settings=a.json", "curl", "-s", "http://x", "--", "-c"])
    assert options.debug and options.settings == "a.json" and options.string is None
    assert options.command == ["curl", "-s", "http://x", "--", "-c"]
    assert Options(["--", "-d"]).command == ["-d"]
    with pytest.raises(SandboxError):
        Options(["-x", "true"])


def test_ssh_goes_to_hosts_that_anything_goes_to() -> None:
    assert read_settings('{"network": {"allowedDomains": ["github.com"]}}').network.allow_git
    with pytest.raises(ConfigError, match=r"network\.deniedDomains"):
        read_settings('{"network": {"deniedDomains": ["not a host"]}}')


def test_some_hosts_go_past_the_parent_proxy(project: Path) -> None:
    proxy = {"http": "http://127.0.0.1:1", "noProxy": "direct.test"}
    network = {"allowedDomains": ["direct.test", "*.direct.test", "other.test"], "parentProxy": proxy}
    hosts = ("direct.test", "a.direct.test", "other.test")
    for host in hosts:
        said = srt(project, "curl", "-s", f"http://{host}/", settings={"network": network}).stdout
        assert f"could not reach {host}" in said
        assert ("Connect call failed" in said or "refused" in said) == (host == "other.test"), said
