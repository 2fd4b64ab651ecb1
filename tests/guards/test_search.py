"""Which existing paths are covered or frozen: any depth, any spelling, through links."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from sandbox.config.model import Filesystem
from sandbox.guards.search import denied, search


def tree(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")


def covered(root: Path, **settings: object) -> set[str]:
    found = search(Filesystem(root=str(root), **settings), [str(root)]).found.masks.values()
    return {os.path.relpath(mask.path, root) + ("/" if mask.is_dir else "") for mask in found}


def frozen(root: Path, **settings: object) -> set[str]:
    found = search(Filesystem(root=str(root), **settings), [str(root)]).found.frozen
    return {os.path.relpath(path, root) for path in found}


def test_sensitive_files_at_any_depth_and_in_any_spelling(tmp_path: Path) -> None:
    tree(
        tmp_path,
        ".env",
        ".ENV.local",
        "a/b/c/server.PEM",
        "a/.aws/config",
        "x/my-Secret.txt",
        "x/ok.py",
        ".env.example",
    )
    tree(tmp_path, "u/．env", "secrets/inner/deep.txt")
    assert covered(tmp_path) == {
        ".env", ".ENV.local", "a/b/c/server.PEM", "a/.aws/", "x/my-Secret.txt", "u/．env", "secrets/",
    }  # fmt: skip


def test_path_patterns_and_exceptions(tmp_path: Path) -> None:
    tree(tmp_path, "conf/prod/db.yml", "conf/dev/db.yml", "other/conf/prod/db.yml")
    assert covered(tmp_path, blocked_patterns=["conf/*/db.yml"]) == {"conf/prod/db.yml", "conf/dev/db.yml"}
    assert covered(tmp_path, blocked_patterns=["**/db.yml"], allowed_patterns=["conf/dev/db.yml"]) == {
        "conf/prod/db.yml",
        "other/conf/prod/db.yml",
    }


def test_installed_packages_keep_their_certificates_and_code(tmp_path: Path) -> None:
    tree(tmp_path, ".venv/lib/site-packages/certifi/cacert.pem", "web/node_modules/x/credentials.js", "x.pem")
    assert covered(tmp_path) == {"x.pem"}


def test_hard_links_to_a_sensitive_file_are_covered_too(tmp_path: Path) -> None:
    tree(tmp_path, ".env", "sub/")
    os.link(tmp_path / ".env", tmp_path / "sub" / "innocent.txt")
    assert covered(tmp_path) == {".env", "sub/innocent.txt"}


def test_a_sensitive_name_that_is_a_link_covers_what_it_leads_to(tmp_path: Path) -> None:
    tree(tmp_path, "config/prod.txt", "keys/one")
    (tmp_path / ".env").symlink_to("config/prod.txt")
    (tmp_path / ".aws").symlink_to("keys")
    assert covered(tmp_path) == {"config/prod.txt", "keys/"}


def test_a_link_out_of_the_tree_or_to_nowhere_needs_no_cover(tmp_path: Path) -> None:
    tree(tmp_path, "project/", "elsewhere.txt")
    (tmp_path / "project" / ".env").symlink_to("../elsewhere.txt")
    (tmp_path / "project" / "x.pem").symlink_to("nowhere")
    (tmp_path / "project" / "loop.key").symlink_to("loop.key")
    assert covered(tmp_path / "project") == set()


def test_sockets_of_the_host_are_covered(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(tmp_path)
        listener.bind("app.sock")
        assert covered(tmp_path) == {"app.sock"}


@pytest.mark.walls  # so that somebody runs it as an ordinary user
@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_directory_that_cannot_be_searched_is_covered_whole(tmp_path: Path) -> None:
    tree(tmp_path, "closed/.env")
    (tmp_path / "closed").chmod(0)
    try:
        assert covered(tmp_path) == {"closed/"}
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_branches_named_like_secrets_stay_readable(tmp_path: Path) -> None:
    tree(tmp_path, ".git/refs/heads/rotate-secret", ".git/logs/refs/heads/fix-credentials", ".git/secret")
    assert covered(tmp_path) == {".git/secret"}


def test_deny_read_covers_all_but_what_allow_read_exempts(tmp_path: Path) -> None:
    tree(tmp_path, "data/a/x", "data/b/c/y", "data/b/d/z", "data/top")
    assert covered(tmp_path, deny_read=["data"]) == {"data/"}
    assert covered(tmp_path, deny_read=["data"], allow_read=["data/b/c"]) == {"data/a/", "data/b/d/", "data/top"}
    assert covered(tmp_path, deny_read=["data/*/x"]) == {"data/a/x"}
    assert covered(tmp_path, deny_read=["..", "/", "~"]) == set()


def test_what_the_host_would_run_is_frozen_and_its_directory_stays_in_place(tmp_path: Path) -> None:
    tree(tmp_path, ".git/hooks/", ".git/config", "lib/.git/config", ".vscode/", ".mcp.json", ".claude/settings.json")
    tree(tmp_path, ".sandbox/config.yaml", "sub/.git", "src/config", "src/hooks/")
    assert frozen(tmp_path) == {
        ".git/hooks", ".git/config", "lib/.git/config", ".vscode", ".mcp.json", ".claude", ".sandbox", "sub/.git",
    }  # fmt: skip
    pinned = search(Filesystem(root=str(tmp_path)), [str(tmp_path)]).found.pinned
    assert {os.path.relpath(path, tmp_path) for path in pinned} == {".git", "lib", "lib/.git"}


def test_deny_write_freezes(tmp_path: Path) -> None:
    tree(tmp_path, "docs/x", "a.lock", "b.lock")
    assert frozen(tmp_path, deny_write=["docs", "*.lock"]) == {"docs", "a.lock", "b.lock"}


def test_the_sandboxs_own_home_is_covered_when_it_lies_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / ".sandbox"))
    tree(tmp_path, ".sandbox/audit/audit.jsonl")
    assert covered(tmp_path) == {".sandbox/"}


def test_several_roots_and_files_as_roots(tmp_path: Path) -> None:
    tree(tmp_path, "a/.env", "a/b/.env", "c/x.pem", "d/id.key")
    roots = [str(tmp_path / name) for name in ("a", "a/b", "c", "d/id.key")]
    found = {
        os.path.relpath(mask.path, tmp_path) for mask in search(Filesystem(root=roots[0]), roots).found.masks.values()
    }
    assert found == {"a/.env", "a/b/.env", "c/x.pem", "d/id.key"}


def test_deny_read_holds_in_the_system_and_in_programs_under_the_home_too(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    for name in ("share/doc/a", "share/doc/b", "share/kept"):
        (tools / name).mkdir(parents=True)

    def found(shown: list[str], **settings: list[str]) -> list[str]:
        filesystem = Filesystem(root=str(tmp_path / "project"), **settings)
        return sorted(os.path.relpath(mask.path, tools) for mask in denied(filesystem, [str(tools)], shown))

    assert found([], deny_read=[f"{tools}/share/doc"]) == ["share/doc"]
    assert found([], deny_read=[f"{tools}/share/doc/*"]) == ["share/doc/a", "share/doc/b"]
    assert found([], deny_read=[f"{tools}/share"], allow_read=[f"{tools}/share/doc/a"]) == ["share/doc/b", "share/kept"]
    assert found([f"{tools}/share/doc"], deny_read=[f"{tools}/share"]) == ["share/kept"]  # the project stays
    assert found([], deny_read=["/", str(tmp_path)]) == []  # a narrower path that is shown wins


def test_a_glob_begins_at_the_project_also_where_its_path_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It began at `/`: every start of `srt` with such a rule walked the whole machine.
    tree(tmp_path, "project/a/notes", "beside/notes")
    monkeypatch.chdir(tmp_path / "project")
    roots = [f"{tmp_path}/project", f"{tmp_path}/beside"]
    found = search(Filesystem(root=".", deny_read=["**/notes"]), roots).found.masks
    assert list(found) == [f"{tmp_path}/project/a/notes"]


def test_a_directory_is_searched_once_however_many_links_a_tenant_has_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search for each made every later start take seconds, and more."""
    tree(tmp_path, "big/x/prod.yaml", *(f"a{number}/" for number in range(50)))
    for number in range(50):
        (tmp_path / f"a{number}" / "config").symlink_to("../big")
    listed = []
    scan = os.scandir

    def counted(path: str) -> object:
        listed.append(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", counted)
    assert covered(tmp_path, blocked_patterns=["*/config/x/prod.yaml"]) == {"big/x/prod.yaml"}
    assert listed.count(str(tmp_path / "big")) <= 2  # by the search itself, and for the links
