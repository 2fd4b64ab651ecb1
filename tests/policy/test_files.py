"""The file rules as tables: AC-1, AC-2, srt's precedence, and names made to slip by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.config.model import Filesystem
from sandbox.config.patterns import Patterns, checked
from sandbox.policy.files import FileGuard

ROOT = "/home/dev/project"


def guard(**settings: object) -> FileGuard:
    return FileGuard(Filesystem(root=ROOT, **settings), home="/home/dev")


@pytest.mark.parametrize(
    ("path", "allowed", "rule"),
    [
        ("./", True, "within-project-root"),
        ("src/auth/login.js", True, "within-project-root"),
        (f"{ROOT}/src", True, "within-project-root"),
        ("~/.ssh/id_rsa", False, "outside-project-root"),
        ("~/.aws/credentials", False, "outside-project-root"),
        ("/etc/passwd", False, "outside-project-root"),
        ("../other", False, "outside-project-root"),
        ("..", False, "outside-project-root"),
        ("src/../../other", False, "outside-project-root"),
        (f"{ROOT}-other/x", False, "outside-project-root"),
        ("//etc/passwd", False, "outside-project-root"),
        ("/usr/bin/env", True, "system"),
        ("/tmp/x", True, "own-scratch"),
    ],
)
def test_ac_1_which_places_can_be_read(path: str, allowed: bool, rule: str) -> None:
    decision = guard().check(path)
    assert (decision.allowed, decision.rule) == (allowed, rule)


@pytest.mark.parametrize(
    "path",
    [
        ".env", ".env.local", "a/b/.env", "server.pem", "deep/er/tls.key", "aws-credentials.json", "client_secret.txt",
        ".aws/config", "sub/.ssh/known_hosts", ".gnupg/x", "secrets/db.yaml", ".env.d/inner",
        # the same in disguise
        ".ENV", "Server.PEM", ".e\u200cnv", "．env", "CREDENTIALS", "my-ſecret", ".aws", "./././.env", "a//b/../.env",
    ],
)  # fmt: skip
def test_ac_2_sensitive_files_are_denied(path: str) -> None:
    decision = guard().check(path)
    assert not decision.allowed
    assert decision.rule == "sensitive-file-pattern"
    assert decision.reason.startswith("Matches blocked pattern: ")


@pytest.mark.parametrize(
    "path", [".environment", "env", "key.txt", "monkeys.pemx", "src/keys.py", ".git/refs/heads/fix-secret"]
)
def test_ac_2_ordinary_files_are_not(path: str) -> None:
    assert guard().check(path)


def test_allowed_patterns_win_but_not_inside_a_blocked_directory() -> None:
    assert guard().check(".env.example")
    assert guard().check("packages/api/.env.example")
    assert not guard().check(".ssh/.env.example")


def test_the_words_are_the_seeds() -> None:
    decision = guard(blocked_patterns=["**/.env*"]).check("./.env")
    assert decision.reason == "Matches blocked pattern: **/.env*"


@pytest.mark.parametrize(
    ("pattern", "path", "is_dir", "matches"),
    [
        ("*.pem", "a/b.pem", False, True),
        ("*.pem", "a/b.pem.txt", False, False),
        ("/build", "build", True, True),
        ("/build", "a/build", True, False),
        ("src/*.py", "src/a.py", False, True),
        ("src/*.py", "src/b/a.py", False, False),
        ("src/**/x", "src/x", False, True),
        ("src/**/x", "src/a/b/x", False, True),
        ("**/.env*", "a/.env.prod", False, True),
        ("**/conf/db.yml", "a/conf/db.yml", False, True),
        ("**/conf/db.yml", "conf/db.yml", False, True),
        ("conf/**", "conf/a/b", False, True),
        (".aws/", ".aws", False, False),
        (".aws/", ".aws", True, True),
        ("[ab].txt", "b.txt", False, True),
        ("[!ab].txt", "b.txt", False, False),
        ("?.txt", "ab.txt", False, False),
        ("a\\*b", "a*b", False, True),
        ("a\\*b", "axb", False, False),
    ],
)
def test_patterns_mean_what_gitignore_says(pattern: str, path: str, is_dir: bool, matches: bool) -> None:
    assert (Patterns([pattern]).match(path, is_dir) is not None) is matches


@pytest.mark.parametrize("pattern", ["", "/", "!x", "../x", "a/../x", "a\0b", "[z-a]"])
def test_bad_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        checked([pattern])


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30), st.text(max_size=30))
def test_any_accepted_pattern_can_be_matched_against_anything(pattern: str, path: str) -> None:
    try:
        accepted = checked([pattern])
    except ValueError:
        return
    Patterns(accepted).match(path, True)


@given(st.text("abcDEF.-/", max_size=12), st.text("abcDEF.-", max_size=8))
def test_nothing_that_ends_in_a_blocked_name_is_readable(directory: str, stem: str) -> None:
    path = f"{directory}/{stem}.PeM"
    if not stem.strip("."):
        return
    assert not guard().check(f"./{path}")


def test_srts_precedence_for_reading() -> None:
    srt = guard(deny_read=["data", "data/public/private"], allow_read=["data/public"])
    assert not srt.check("data/x")
    assert srt.check("data/public/x")
    assert not srt.check("data/public/private/x")
    assert not guard(deny_read=["data"], allow_read=["data"]).check("data/x")


def test_denying_everything_around_the_project_leaves_the_project() -> None:
    assert guard(deny_read=["~"]).check("src/x")


def test_srts_precedence_for_writing() -> None:
    srt = guard(allow_write=["/srv/out"], deny_write=["/srv/out/keep", "docs"], allow_read=["/srv/in"])
    assert srt.check("/srv/out/x", "write")
    assert not srt.check("/srv/out/keep/x", "write")
    assert not srt.check("docs/x", "write")
    assert srt.check("docs/x", "read")
    assert not srt.check("/srv/in/x", "write")
    assert srt.check("src/x", "write")


def test_a_read_only_project_can_only_be_written_where_it_is_said() -> None:
    srt = guard(read_only=True, allow_write=["out"])
    assert not srt.check("src/x", "write")
    assert srt.check("out/x", "write")


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit", ".git/config", "sub/.git/config", ".gitmodules", ".gitconfig", ".bashrc", ".zshrc",
        ".profile", ".mcp.json", ".vscode/tasks.json", ".idea/x", ".claude/commands/x.md", ".claude/agents/x.md",
        ".claude/settings.json", ".sandbox/config.yaml", ".uds/config.yaml", ".GIT/Config", ".envrc",
        ".git/modules/a/b/config",
    ],
)  # fmt: skip
def test_what_the_host_would_run_is_never_written(path: str) -> None:
    decision = guard().check(path, "write")
    assert (decision.allowed, decision.rule) == (False, "protected-file")
    assert guard().check(path, "read") or "env" in path


def test_deny_read_is_about_the_system_too() -> None:
    denying = guard(deny_read=["/usr/share/doc"])
    assert denying.check("/usr/share/doc/bash").rule == "deny-read"
    assert denying.check("/usr/share/man")
    assert guard(deny_read=["/"]).check("/usr/share/doc")


def test_with_the_whole_host_shown_everything_is_read_that_is_not_denied() -> None:
    files = guard(show_host=True, read_only=True, blocked_patterns=[], deny_read=["~/.ssh"], allow_write=["/tmp"])
    assert files.check("/home/dev/notes") and files.check("/etc/passwd") and files.check(f"{ROOT}/.env")
    assert not files.check("/home/dev/.ssh/id_rsa") and not files.check("/home/dev/notes", "write")
    assert files.check("/tmp/x", "write") and not files.check(f"{ROOT}/x", "write")


def test_of_claudes_directory_only_what_it_runs_is_protected_there() -> None:
    files = guard(show_host=True, blocked_patterns=[])
    assert files.check(f"{ROOT}/.claude/notes", "write") and not guard().check(f"{ROOT}/.claude/notes", "write")
    for name in ("commands/x", "agents/x", "skills/x/SKILL.md", "settings.json", "settings.local.json"):
        assert not files.check(f"{ROOT}/.claude/{name}", "write"), name
    assert not files.check(f"{ROOT}/.git/config", "write")
    assert guard(allow_git_config=True).check(f"{ROOT}/.git/config", "write")
    assert not guard(allow_git_config=True).check(f"{ROOT}/.git/hooks/x", "write")
