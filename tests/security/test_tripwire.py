"""Blocked accesses are on the record, with who and what; where FUSE cannot be had the walls hold all the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.audit.feed import subscribe_audit_feed
from sandbox.guards import tripwire
from tests.patience import assert_given_back, open_descriptors

SECRET = "s3cret-value"
CAN = os.access("/dev/fuse", os.R_OK | os.W_OK)
fuse = pytest.mark.skipif(not CAN, reason="/dev/fuse cannot be opened")

Entries = list[dict[str, Any]]


@pytest.fixture
def project(project: Path) -> Path:
    (project / ".env").write_text(SECRET)
    (project / "secrets").mkdir()
    (project / "secrets" / "db").write_text(SECRET)
    (project / "main.py").write_text("code")
    return project


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name in (".aws/credentials", ".ssh/id_ed25519", ".ssh/id_ed25519.pub", ".ssh/config", ".netrc", ".bashrc"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def blocked() -> Iterator[Entries]:
    """The record's entries about blocked accesses; complete once the sandbox is closed."""
    found: Entries = []
    end = subscribe_audit_feed(lambda entry: found.append(dict(entry)) if entry.get("result") == "blocked" else None)
    yield found
    end()


def opened(project: Path, **filesystem: object) -> Sandbox:
    patterns = [".env", "secrets/", "*.key"]
    return Sandbox({"filesystem": {"root": str(project), "blocked_patterns": patterns, **filesystem}})


def short(entries: Entries) -> list[tuple[str, str, str]]:
    return [(one["operation"], one["target"], one["metadata"]["program"]) for one in entries]


def named(sandbox: Sandbox, program: str) -> str:
    """What the record calls a program that touched a file, with the engine at hand."""
    return program if sandbox._can.programs else "guest"


def covered(sandbox: Sandbox) -> list[str]:
    """Where a tripwire stands, as the mounts of the place that the engine built tell."""
    lines = Path(f"/proc/{sandbox._running.pid}/mounts").read_text().splitlines()
    return [path for _, path, kind, *_ in map(str.split, lines) if kind == "fuse"]


@fuse
def test_reading_a_blocked_file_at_once_is_on_the_record(project: Path, blocked: Entries) -> None:
    events: list[Any] = []
    with opened(project) as sandbox:
        sandbox.on_event(lambda one: events.append(one["file"]) if one["type"] == "file" else None)
        result = sandbox.exec(["cat", ".env"])
        assert (result.exit_code, result.stdout, result.stderr) == (1, "", "cat: .env: Permission denied\n")
        program = named(sandbox, "cat")
    [entry] = blocked
    assert entry["type"] == "policy_decision" and entry["severity"] == "warn" and entry["summary"] == "read ./.env"
    assert (entry["operation"], entry["target"], entry["policy"]) == ("read", "./.env", "sensitive-file-pattern")
    assert entry["reason"] == "Matches blocked pattern: .env"
    assert entry["metadata"]["program"] == program and entry["metadata"]["pid"] > 1
    assert events == [{"op": "read", "path": str(project / ".env"), "blocked": True}]


@fuse
@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        ("ls secrets", ("list", "./secrets", "ls")),
        ("cat secrets/db", ("read", "./secrets/db", "cat")),
        ("truncate -s 0 .env", ("write", "./.env", "truncate")),
        ("ln -s $PWD/.env /tmp/x; cat /tmp/x", ("read", "./.env", "cat")),
        ("cat hard", ("read", "./hard", "cat")),
        ("cd /proc/self/root && cat .$OLDPWD/.env", ("read", "./.env", "cat")),
    ],
)
def test_whatever_way_leads_there(project: Path, blocked: Entries, attempt: str, expected: tuple[str, ...]) -> None:
    os.link(project / ".env", project / "hard")
    with opened(project) as sandbox:
        result = sandbox.exec(attempt)
        assert result.exit_code != 0 and SECRET not in result.stdout
        operation, path, program = expected
        known = named(sandbox, program)
    assert short(blocked) == [(operation, path, known)]
    assert (project / ".env").read_text() == SECRET


@fuse
def test_looking_and_allowed_files_are_not_recorded_and_not_slowed(project: Path, blocked: Entries) -> None:
    with opened(project) as sandbox:
        assert sandbox.exec("stat .env secrets && ls -la && cat main.py && echo x > new").exit_code == 0
        served = {path for path in covered(sandbox) if path.startswith(str(project))}
        assert served == {str(project / ".env"), str(project / "secrets")}
    assert blocked == []


@fuse
def test_a_flood_is_bounded_and_blocks_nobody_else(project: Path, blocked: Entries) -> None:
    with opened(project) as sandbox:
        flood = sandbox.spawn("while :; do cat .env secrets/db 2>/dev/null; done")
        for _ in range(20):
            assert sandbox.exec(["cat", "main.py"]).stdout == "code"
        flood.kill()
        assert sandbox.exec("for i in $(seq 1000); do read x < .env; done").exit_code != 0
    assert 0 < len(blocked) <= 2 * 16


@fuse
def test_secret_places_of_the_home_are_seen_by_name_only(project: Path, home: Path, blocked: Entries) -> None:
    with opened(project) as sandbox:
        assert sorted(sandbox.exec("ls -A ~ ~/.ssh").stdout.split()) == sorted(
            [f"{home}:", ".aws", ".netrc", ".ssh", f"{home}/.ssh:", "id_ed25519"]
        )
        for attempt in ("cat ~/.aws/credentials", "cat ~/.ssh/id_ed25519", "ls ~/.aws", "cat ~/.netrc"):
            result = sandbox.exec(attempt)
            assert result.exit_code != 0 and SECRET not in result.stdout, attempt
        # `ssh` and everybody else can still use the home for their own.
        assert (
            sandbox.exec("echo host > ~/.ssh/known_hosts && cat ~/.ssh/known_hosts; echo x > ~/.x").stdout == "host\n"
        )
        assert sandbox.exec("ssh -G somewhere > /dev/null").exit_code in (0, 127)
        cat, ls = named(sandbox, "cat"), named(sandbox, "ls")
    assert short(blocked) == [
        ("read", "~/.aws/credentials", cat), ("read", "~/.ssh/id_ed25519", cat),
        ("list", "~/.aws", ls), ("read", "~/.netrc", cat),
    ]  # fmt: skip
    assert blocked[0]["reason"] == "Matches blocked pattern: ~/.aws"


def test_a_secret_place_that_was_allowed_is_shown(project: Path, home: Path) -> None:
    with opened(project, allow_read=[str(home / ".aws"), str(home / ".ssh/config")]) as sandbox:
        assert sandbox.exec("cat ~/.aws/credentials ~/.ssh/config").stdout == SECRET * 2
        assert sandbox.exec("cat ~/.ssh/id_ed25519").exit_code != 0


def test_a_project_that_is_the_home_works_the_same(home: Path) -> None:
    (home / "notes").write_text("mine")
    with Sandbox({"filesystem": {"root": str(home)}}) as sandbox:
        result = sandbox.exec("cat .ssh/id_ed25519 .aws/credentials .netrc; cat notes")
        assert result.stdout == "mine" and "Permission denied" in result.stderr


def test_what_is_refused_inside_what_is_refused_holds_up_nothing(project: Path) -> None:
    inside = str(project / "secrets" / "db")
    with opened(project, deny_write=[inside], deny_read=[inside]) as sandbox:
        assert SECRET not in sandbox.exec("cat secrets/db .env").stdout


def test_it_works_with_an_overlay_own_directories_and_a_gate_with_hooks(project: Path, home: Path) -> None:
    class Hooks:
        def on_request(self, request: object) -> None:
            """Nothing: that there is one makes the gate intercept."""

    config = {
        "filesystem": {"root": str(project), "blocked_patterns": [".env", "secrets/"], "overlay": True},
        "vfs": {"mounts": {"/data": {"type": "memory"}}},
    }
    with Sandbox(config, hooks=Hooks()) as sandbox:
        result = sandbox.exec("cat .env secrets/db; echo x > /data/x; echo y > main.py; cat /data/x main.py")
        assert result.stdout == "x\ny\n" and result.stderr.count("Permission denied") == 2


@fuse
def test_there_are_at_most_sixty_four(project: Path, blocked: Entries) -> None:
    for number in range(80):
        (project / f"{number:02}.key").write_text(SECRET)
    with opened(project) as sandbox:
        assert SECRET not in sandbox.exec("cat .env *.key secrets/*").stdout
        assert len(covered(sandbox)) == 64


def test_without_fuse_the_masks_are_plain_and_hold(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch, blocked: Entries
) -> None:
    monkeypatch.setattr(tripwire, "FUSE", "/dev/no-such-device")
    with opened(project) as sandbox:
        result = sandbox.exec("cat .env secrets/db; echo x > .env; chmod 777 .env; ls -A ~")
        refused = [line.partition(":")[0] for line in result.stderr.splitlines()]
        assert result.stdout == "" and refused == ["cat", "cat", "/bin/sh", "chmod"], result
        assert covered(sandbox) == []
    assert blocked == []


def test_sandboxes_with_tripwires_give_back_every_descriptor_and_thread(project: Path) -> None:
    import threading

    opened(project).close()
    before, threads = open_descriptors(), threading.active_count()
    for _ in range(5):
        with opened(project) as sandbox:
            sandbox.exec("cat .env")
    assert_given_back(before)
    assert_given_back(threads, threading.active_count)


@fuse
def test_a_tenant_reaches_no_fuse_device(project: Path) -> None:
    with opened(project) as sandbox:
        held = "ls -l /proc/[0-9]*/fd /proc/1/task/*/fd 2>/dev/null | grep -c fuse"
        result = sandbox.exec(f"{held}; ls /.tripwire /dev/fuse; cat /proc/1/fd/5")
        assert (
            result.stdout == "0\n" and result.stderr.count("No such file") == 2 and "Permission denied" in result.stderr
        )
