"""What can be read and written behind `srt`: everything that is not denied, and nothing that is not named."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_srt import project, srt

__all__ = ["project"]
pytestmark = pytest.mark.walls
ROOT = Path(__file__).parents[2]


def write(path: Path, content: str = "content\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_everything_can_be_read_and_nothing_written(project: Path) -> None:
    beside, home = write(project.parent / "beside" / "file"), write(project.parent / "home" / "notes")
    done = srt(project, "-c", f"cat {beside} {home} /etc/os-release; touch {beside} {home} here /tmp/here ~/x")
    assert done.stdout.startswith("content\ncontent\n") and "NAME" in done.stdout
    assert done.stderr.count("Read-only file system") == 5 and os.listdir(project) == []


def test_the_environment_passes_but_for_what_credentials_withhold(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MY_API_KEY", "LD_LIBRARY_PATH", "DENIED_TOKEN", "MASKED_TOKEN"):
        monkeypatch.setenv(name, f"/value-of-{name.lower()}")
    asked = [{"name": "DENIED_TOKEN", "mode": "deny"}, {"name": "MASKED_TOKEN", "mode": "mask"}]
    settings = {"network": {"allowedDomains": ["a.test"], "tlsTerminate": {}}, "credentials": {"envVars": asked}}
    found = srt(project, "env", settings=settings).stdout.splitlines()
    assert "MY_API_KEY=/value-of-my_api_key" in found and "LD_LIBRARY_PATH=/value-of-ld_library_path" in found
    assert "SANDBOX_RUNTIME=1" in found and not any("value-of-denied" in one for one in found)
    assert any(one.startswith("MASKED_TOKEN=") for one in found) and not any("value-of-masked" in one for one in found)


def test_strict_is_a_closed_home_without_variables_that_look_like_secrets(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "/value-of-it")
    beside = write(project.parent / "beside" / "file")
    write(project / ".env", "SECRET=1")
    command = f"cat {beside} .env; env"
    for words, settings in ((["--strict"], {}), ([], {"strict": True})):
        done = srt(project, *words, "-c", command, settings=settings)
        assert "content" not in done.stdout and "SECRET" not in done.stdout and "value-of-it" not in done.stdout
    assert "value-of-it" in srt(project, "-c", command, settings={}).stdout


def test_a_denied_directory_is_empty_but_for_what_is_allowed_in_it(project: Path) -> None:
    secret, kept = write(project.parent / "secret"), write(project / "kept")
    settings = {
        "filesystem": {"denyRead": [str(project.parent)], "allowRead": ["."], "allowWrite": [], "denyWrite": []}
    }
    done = srt(project, "-c", f"cat {kept}; ls -A ..; cat {secret}; touch x", settings=settings)
    assert done.stdout == "content\nproject\n" and not (project / "x").exists()
    settings["filesystem"]["allowWrite"] = ["out"]
    (project / "out").mkdir()
    done = srt(project, "-c", "echo new > out/made; touch here; ls -A ..", settings=settings)
    assert (project / "out" / "made").read_text() == "new\n" and not (project / "here").exists()
    assert done.stdout == "project\n"


def test_a_deny_inside_what_is_allowed_holds(project: Path) -> None:
    write(project / "a" / ".env", "secret")
    write(project / "b" / "plain")
    settings = {"filesystem": {"denyRead": [str(project.parent), "**/.env"], "allowRead": ["."], "allowWrite": ["."]}}
    done = srt(project, "-c", "cat a/.env b/plain", settings=settings)
    assert done.stdout == "content\n" and "a/.env" in done.stderr


def test_an_allowed_project_can_still_be_written(project: Path) -> None:
    settings = {"filesystem": {"denyRead": [], "allowRead": ["."], "allowWrite": ["."], "denyWrite": []}}
    assert srt(project, "touch", "made", settings=settings).returncode == 0
    assert srt(project, "--strict", "touch", "strict", settings=settings).returncode == 0
    assert {one.name for one in project.iterdir()} == {"made", "strict"}


def test_allow_read_of_everything_is_what_srt_has_anyway(project: Path) -> None:
    settings = {"filesystem": {"denyRead": ["/"], "allowRead": ["/"], "allowWrite": ["."], "denyWrite": []}}
    assert srt(project, "cat", "/etc/os-release", settings=settings).returncode == 0
    done = srt(project, "--strict", "true", settings=settings)
    assert done.returncode == 1 and "filesystem.allowRead" in done.stderr


def test_what_does_not_exist_cannot_be_written_and_is_reported(project: Path) -> None:
    settings = {"filesystem": {"denyRead": [], "allowWrite": [".", "/nowhere/at/all"], "denyWrite": []}}
    done = srt(project, "touch", "made", settings=settings)
    assert done.returncode == 0 and "srt: /nowhere/at/all does not exist" in done.stderr and (project / "made").exists()


def test_globs_and_literal_paths_are_written(project: Path) -> None:
    for name in ("out1", "out2", "other", "[WIP] x", "*"):
        (project / name).mkdir()
    literal = {"path": "*", "literal": True}
    settings = {"filesystem": {"denyRead": [], "allowWrite": ["out*", "[WIP] x", "gone/*"], "denyWrite": []}}
    srt(project, "-c", 'for d in *; do touch "$d/made"; done', settings=settings)
    assert {one.parent.name for one in project.glob("*/made")} == {"out1", "out2", "[WIP] x"}
    settings["filesystem"]["allowWrite"] = [literal]  # type: ignore[list-item]
    srt(project, "-c", 'for d in *; do touch "$d/later"; done', settings=settings)
    assert {one.parent.name for one in project.glob("*/later")} == {"*"}


def test_a_link_that_a_tenant_left_does_not_widen_a_glob(project: Path) -> None:
    victim = write(project.parent / "victim" / "file")
    (project / "out").mkdir()
    (project / "out" / "link").symlink_to(victim.parent)
    settings = {"filesystem": {"denyRead": [], "allowWrite": ["out/*"], "denyWrite": []}}
    srt(project, "-c", "echo evil > out/link/file", settings=settings)
    settings["filesystem"]["allowWrite"] = ["out", "out/link"]
    srt(project, "-c", "echo evil > out/link/file", settings=settings)
    assert victim.read_text() == "content\n"


def test_a_link_that_a_tenant_left_is_not_written_through_in_a_later_run(project: Path) -> None:
    victim = write(project.parent / "victim" / "file")
    settings = {"filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}
    srt(project, "ln", "-s", str(victim.parent), "out", settings=settings)
    srt(project, "ln", "-s", str(project.parent), "above", settings=settings)
    settings["filesystem"]["allowWrite"] = ["out", "above/victim", "out/file", str(project / "out")]
    done = srt(project, "-c", "echo evil > out/file; echo evil > above/victim/file; touch out/new", settings=settings)
    assert victim.read_text() == "content\n" and os.listdir(victim.parent) == ["file"]
    assert f"srt: above/victim leads through a link and is left out of what can be written; name {victim.parent}" in (
        done.stderr
    )


def test_a_command_starts_in_a_hidden_project_of_which_something_can_be_read(project: Path) -> None:
    write(project / "src" / "main")
    write(project / "src" / "key")
    write(project / "notes")
    rules = {"denyRead": [".", "src/key"], "allowRead": ["src"], "allowWrite": [], "denyWrite": []}
    done = srt(project, "-c", "pwd; ls; cat src/main; cat src/key notes", settings={"filesystem": rules})
    assert done.stdout.splitlines() == [str(project), "src", "content"]


def test_sockets_in_a_closed_directory_of_another_user_do_not_stop_it(project: Path) -> None:
    closed = project.parent / "closed"
    closed.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(closed / "socket"))
        closed.chmod(0o700 if os.getuid() == 0 else 0)
        if os.getuid() == 0:
            os.chown(closed, 65534, 65534)
        allowed = {"allowedDomains": [], "deniedDomains": [], "allowUnixSockets": [str(project / "other.sock")]}
        done = srt(project, "-c", f"echo up; ls {closed}/socket", settings={"network": allowed})
        closed.chmod(0o700)
    assert done.stdout == "up\n" and "Permission denied" in done.stderr


def test_what_two_sandboxes_may_not_make_stays_so_when_the_first_one_ends(project: Path) -> None:
    (project / ".claude").mkdir()
    (project.parent / "data").mkdir()
    denied = [".claude/settings.json", "new", "a/b/c", "../data/new", "../data/d/e"]
    rules = {"denyRead": [], "allowWrite": [".", "../data"], "denyWrite": denied}
    attempts = "; ".join(f"mkdir -p $(dirname {path}); echo evil > {path}" for path in denied)
    with (
        running(project, {"filesystem": rules}, "true") as first,
        running(project, {"filesystem": rules}, attempts) as second,
    ):
        first.communicate("go on\n")
        second.communicate("go on\n")
    assert not [path for path in denied if (project / path).exists()]
    assert os.listdir(project.parent / "data") == []


@contextmanager
def running(project: Path, settings: object, command: str) -> Iterator[subprocess.Popen[str]]:
    """A command that waits in its sandbox for a line."""
    home = project.parent / "home"
    (home / ".srt-settings.json").write_text(json.dumps(settings))
    environment = {**os.environ, "HOME": str(home), "SANDBOX_HOME": str(home / ".sandbox")}
    words = [sys.executable, "-m", "sandbox.cli.srt", "-c", f"echo up; read line; {command}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=project, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        yield process


def test_tmp_is_the_machines_and_what_is_denied_in_it_stays_so(project: Path) -> None:
    place = Path(f"/tmp/srt-test-{os.getpid()}")
    settings = {
        "filesystem": {"allowWrite": ["/tmp"], "denyRead": [f"{place}/a/secret"], "denyWrite": [f"{place}/b/x"]}
    }
    settings["filesystem"]["denyWrite"] += [f"{place}/new"]
    try:
        write(place / "a" / "secret", "secret")
        write(place / "b" / "x", "old")
        script = "echo new > x; cat a/secret b/secret; mv a c; mv b d; echo new > b/x; echo new > new; cat c/secret"
        done = srt(project, "-c", f"cd {place}; {script}", settings=settings)
        left = {str(one.relative_to(place)): one.read_text() for one in place.rglob("*") if one.is_file()}
        assert done.stdout == "" and left == {"x": "new\n", "a/secret": "secret", "b/x": "old"}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    done = srt(project, "-c", 'echo x > "$TMPDIR/x" && cat "$TMPDIR/x" && rm "$TMPDIR/x"', settings={})
    assert done.stdout == "x\n"


def test_a_project_in_tmp_keeps_its_guards_when_all_of_tmp_can_be_written(project: Path) -> None:
    settings = {"filesystem": {"denyRead": [], "allowWrite": ["/tmp", "."], "denyWrite": []}}
    config = write(project / ".git" / "config", "[core]\n")
    script = "echo evil >> .git/config; echo evil > .bashrc; cd ..; mv project moved; mv ../$(basename $PWD) ../gone"
    if not str(project).startswith("/tmp/"):
        pytest.skip("temporary files are elsewhere")
    srt(project, "-c", script, settings=settings)
    assert config.read_text() == "[core]\n" and not (project / ".bashrc").exists()


def test_a_socket_that_was_named_connects_and_no_other(project: Path) -> None:
    named, other = project.parent / "named", project.parent / "other"
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        for sock, path in ((one, named), (two, other)):
            sock.bind(str(path))
            sock.listen()

        def reached(path: Path, network: Mapping[str, object], *words: str) -> bool:
            done = srt(project, *words, "python3", "-c", connect, str(path), settings={"network": network})
            return done.returncode == 0

        assert not reached(named, {}) and not reached(named, {}, "--strict")
        only = {"allowUnixSockets": [str(named), "/gone.sock"]}
        assert reached(named, only) and not reached(other, only)
        assert reached(named, only, "--strict") and not reached(other, only, "--strict")
        assert reached(other, {"allowAllUnixSockets": True})


def test_git_config_can_be_written_when_that_was_asked(project: Path) -> None:
    write(project / ".git" / "HEAD", "ref: refs/heads/main\n")
    for name in ("objects", "refs", "hooks"):
        (project / ".git" / name).mkdir()
    config, hook = write(project / ".git" / "config", "[core]\n"), write(project / ".git" / "hooks" / "pre-commit")
    settings = {"filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}
    command = "git config user.name Ann; echo evil > .git/hooks/pre-commit"
    srt(project, "-c", command, settings=settings)
    assert "Ann" not in config.read_text()
    settings["filesystem"]["allowGitConfig"] = True  # type: ignore[assignment]
    srt(project, "-c", command, settings=settings)
    assert "Ann" in config.read_text() and hook.read_text() == "content\n"


def test_directories_are_safe_for_git_when_they_are_named(project: Path) -> None:
    settings = {"git": {"safeDirectories": [str(project), "/other"]}}
    done = srt(project, "git", "config", "--get-all", "safe.directory", settings=settings)
    assert done.stdout.splitlines()[-2:] == [str(project), "/other"]


def test_claudes_directory_can_be_written_but_for_what_is_run(project: Path) -> None:
    write(project / ".claude" / "settings.json", "{}")
    settings = {"filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}
    names = ".claude/notes .claude/commands/x .claude/agents/x .claude/settings.json .claude/settings.local.json"
    srt(project, "-c", f"for f in {names}; do mkdir -p $(dirname $f); echo evil > $f; done", settings=settings)
    left = {str(one.relative_to(project)) for one in project.rglob("*") if one.is_file()}
    assert left == {".claude/notes", ".claude/settings.json"}
    assert (project / ".claude" / "settings.json").read_text() == "{}"


MANDATORY = (
    ".gitconfig .gitmodules .bashrc .bash_profile .zshrc .zprofile .profile .ripgreprc .mcp.json .vscode/tasks.json "
    ".idea/x .claude/commands/x .claude/agents/x .git/hooks/pre-commit .git/config"
)


@pytest.mark.parametrize("there", [False, True])
def test_what_programs_of_the_host_run_is_never_written_whether_it_exists_or_not(project: Path, there: bool) -> None:
    write(project / ".git" / "HEAD", "ref: refs/heads/main\n")
    for name in ("objects", "refs", "hooks"):
        (project / ".git" / name).mkdir()
    write(project / ".git" / "config", "[core]\n")
    for name in MANDATORY.split() if there else ():
        if name != ".git/config":
            write(project / name, "mine")
    before = {str(one): one.read_bytes() for one in project.rglob("*") if one.is_file()}
    settings = {"filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": ["later.txt", "deep/er/x"]}}
    names = f"{MANDATORY} later.txt deep/er/x"
    script = "mkdir -p $(dirname $f); echo evil > $f; mv $f gone; rm -rf $f gone"
    script = f"for f in {names}; do {script}; done; git add -A; echo $?; git ls-files --cached"
    done = srt(project, "-c", script, settings=settings)
    after = {str(one): one.read_bytes() for one in project.rglob("*") if one.is_file()}
    assert {path: data for path, data in after.items() if "/.git/" not in path or path in before} == before
    # What stands in their place is not in git's way.
    assert done.stdout.startswith("0\n") if there else done.stdout == "0\n", done.stderr


def test_a_link_that_a_tenant_left_opens_nothing_in_strict_settings(project: Path) -> None:
    victim = write(project.parent / "victim" / "file")
    (project / "data").symlink_to(victim.parent)
    for key in ("allowRead", "allowWrite"):
        settings = {"filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}
        settings["filesystem"][key] = [*settings["filesystem"].get(key, []), "data"]
        done = srt(project, "--strict", "-c", "cat data/file; echo evil > data/file", settings=settings)
        assert done.returncode == 1 and "is a link out of a directory that sandboxes write to" in done.stderr
    assert victim.read_text() == "content\n"


# The settings in srt's own manual, and what it says of each.
GITHUB = ["github.com", "*.github.com", "lfs.github.com", "api.github.com"]
MANUAL: dict[str, dict[str, Any]] = {
    "servers": {
        "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": ["~/sensitive-folder"]},
        "network": {"allowedDomains": [], "deniedDomains": []},
    },
    "complete": {
        "network": {
            "allowedDomains": [*GITHUB, "npmjs.org", "*.npmjs.org"],
            "deniedDomains": ["malicious.com"],
            "allowUnixSockets": ["/var/run/docker.sock"],
            "allowLocalBinding": False,
        },
        "filesystem": {
            "denyRead": ["~/.ssh"],
            "allowRead": [],
            "allowWrite": [".", "src/", "test/", "/tmp"],
            "denyWrite": [".env", "config/production.json"],
        },
        "ignoreViolations": {"*": ["/usr/bin", "/System"], "git push": ["/usr/bin/nc"], "npm": ["/private/tmp"]},
        "enableWeakerNestedSandbox": False,
        "allowNestedUserNamespaces": False,
        "enableWeakerNetworkIsolation": False,
        "allowAppleEvents": False,
    },
    "terminate": {
        "network": {
            "allowedDomains": ["*.example.com", "internal-mtls.example.net"],
            "deniedDomains": [],
            "tlsTerminate": {
                "excludeDomains": ["internal-mtls.example.net"],
                "extraCaCertPaths": ["/etc/internal-mtls-roots.pem"],
            },
        },
        "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    },
    "github": {
        "network": {"allowedDomains": GITHUB, "deniedDomains": []},
        "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    },
    "directories": {
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {
            "denyRead": ["~/.ssh"],
            "allowWrite": [".", "src/", "test/"],
            "denyWrite": [".env", "secrets/"],
        },
    },
    "workspace": {
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {"denyRead": ["/Users", "~"], "allowRead": ["."], "allowWrite": ["."], "denyWrite": []},
    },
    "depth": {"mandatoryDenySearchDepth": 5, "filesystem": {"allowWrite": ["."]}},
}


@pytest.mark.parametrize("name", MANUAL)
def test_the_settings_in_srts_manual_do_what_it_says(project: Path, name: str) -> None:
    home = project.parent / "home"
    for path in (home / ".ssh" / "id_rsa", home / "notes", home / "sensitive-folder" / "x"):
        write(path, "private\n")
    deny_write: list[str] = MANUAL[name]["filesystem"].get("denyWrite", [])
    script = "cat ~/.ssh/id_rsa ~/notes; echo made > file; touch ~/sensitive-folder/test.txt ~/elsewhere"
    denied = " ".join(one.rstrip("/") for one in deny_write)
    done = srt(project, "-c", f"{script}; for f in {denied}; do echo new > $f; done", settings=MANUAL[name])
    closed = {"complete": 1, "directories": 1, "workspace": 0}.get(name, 2)
    assert done.stdout == "private\n" * closed, done.stderr
    assert (project / "file").read_text() == "made\n" and os.listdir(project) == ["file"]
    if name != "complete":  # which allows /tmp, where this home is
        assert not (home / "sensitive-folder" / "test.txt").exists() and not (home / "elsewhere").exists()


def test_paths_that_are_denied_twice_are_denied_once(project: Path) -> None:
    home = project.parent / "home"
    write(home / ".ssh" / "id_rsa")
    path = project.parent / "x.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        denied = ["~/.ssh/id_rsa", "~/.ssh", "~/.ssh", str(path), "~/.sandbox", "~/.sandbox/audit"]
        settings = {"network": {"allowUnixSockets": ["/nowhere"]}, "filesystem": {"denyRead": denied}}
        done = srt(project, "-c", f"cat ~/.ssh/id_rsa {path}; ls ~/.sandbox; echo here", settings=settings)
    assert done.stdout == "here\n" and done.returncode == 0


def test_a_command_runs_also_where_its_directory_is_denied(project: Path) -> None:
    settings = {"filesystem": {"denyRead": [str(project)], "allowWrite": [], "denyWrite": []}}
    done = srt(project, "pwd", settings=settings)
    assert done.stdout == f"{project.parent}/home\n", done.stderr
    settings["filesystem"]["denyRead"] = [str(project.parent)]
    assert srt(project, "pwd", settings=settings).stdout == "/\n"


@pytest.mark.root  # only root can put one there
def test_another_users_closed_directory_in_the_project_stops_nothing(project: Path) -> None:
    other = write(project / "other" / ".git" / "config").parents[1]
    write(other / ".bashrc")
    os.chown(other, 54321, 54321)
    other.chmod(0o700)
    settings = {"filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}
    done = srt(project, "-c", "cat other/.bashrc; ls other; touch made", settings=settings)
    assert done.stdout == "" and (project / "made").exists(), done.stderr


@pytest.mark.root  # only root can mount in a directory that another user cannot enter
def test_a_second_proc_in_somebody_elses_directory_does_not_stop_a_start() -> None:
    """As while somebody builds an image."""
    with tempfile.TemporaryDirectory(prefix="srt-proc-") as place:  # one that the user can reach
        os.chmod(place, 0o755)
        os.mkdir(f"{place}/home")
        os.chmod(f"{place}/home", 0o777)
        script = f"""
            mkdir -m 700 {place}/private && mkdir {place}/private/proc && mount -t proc proc {place}/private/proc
            cd {place}/home
            exec {ROOT}/scripts/as-user env HOME={place}/home {sys.executable} -m sandbox.cli.srt -- echo fine
        """
        done = subprocess.run(["unshare", "-m", "sh", "-ec", script], capture_output=True, text=True, timeout=60)
        assert done.stdout == "fine\n", done.stderr


def test_a_missing_literal_path_is_reported_as_it_was_written(project: Path) -> None:
    settings = {"filesystem": {"denyRead": [], "allowWrite": [{"path": "x*[1]", "literal": True}], "denyWrite": []}}
    told = srt(project, "true", settings=settings).stderr
    assert "srt: x*[1] does not exist and is left out of what can be written" in told


def test_an_authority_that_cannot_be_read_is_named_by_its_setting(project: Path) -> None:
    terminate = {"caCertPath": "/nope/ca.pem", "caKeyPath": "/nope/ca.key"}
    done = srt(project, "true", settings={"network": {"allowedDomains": [], "tlsTerminate": terminate}})
    assert done.returncode == 1
    assert "Error: network.tlsTerminate.caCertPath: cannot be used: No such file or directory" in done.stderr
