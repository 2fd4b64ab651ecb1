"""A file that was blocked stays blocked: in later runs, wherever it was moved, whatever shows it, whoever is quick."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox import Sandbox, SandboxError
from sandbox.errors import WallError

SECRET = "hunter2-never-to-be-seen"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is remembered is the user's; here each test's."""
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "sandbox-home"))
    return tmp_path / "sandbox-home"


def run(project: Path, command: str, **filesystem: object) -> str:
    with Sandbox({"filesystem": {"root": str(project), **filesystem}}) as sandbox:
        return sandbox.exec(command).stdout


ALL = "cat $(find . -type f -o -type l) 2>/dev/null; true"


def secret(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SECRET)
    return path


@pytest.mark.parametrize("place", ["node_modules", "site-packages", "q/.git/refs", "plain"])
def test_a_blocked_file_moved_by_one_run_is_blocked_in_the_next(project: Path, place: str) -> None:
    secret(project / "sub" / "deep" / ".env")
    os.link(project / "sub" / "deep" / ".env", project / "notes.txt")
    for _ in range(2):
        run(project, f"mkdir -p {place}; mv sub {place}/; mkdir -p {place}/x; mv notes.txt {place}/x/")
    assert SECRET not in run(project, ALL)
    assert (project / place / "sub" / "deep" / ".env").read_text() == SECRET


@pytest.mark.parametrize("place", ["node_modules/app", "v/site-packages/app", ".git/refs/app", ".git/logs/app"])
def test_what_the_person_puts_into_a_directory_that_a_tenant_replaced_by_a_link_is_blocked(
    project: Path, place: str
) -> None:
    """Packages and branches are excepted from the rules, whatever their names; what lies there for a link is not."""
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / "app" / "sub").mkdir(parents=True)
    run(project, f"mkdir -p $(dirname {place}); mv app {place}; ln -s {place} app; ln -s ../app/sub app/x")
    secret(project / "app" / ".env")
    secret(project / "app" / "x" / "key.pem")
    assert SECRET not in run(project, f"{ALL}; cat app/.env app/x/key.pem app/sub/key.pem 2>/dev/null; true")
    assert SECRET not in run(project, "cat app/.env app/sub/key.pem", overlay=True)
    (project / "app").unlink()
    assert SECRET not in run(project, ALL)


def test_a_rule_about_a_path_holds_where_a_tenants_link_is_on_that_path(project: Path) -> None:
    (project / "config").mkdir()
    rules = {"blocked_patterns": ["config/prod.yaml"]}
    run(project, "mv config elsewhere; ln -s elsewhere config", **rules)
    secret(project / "config" / "prod.yaml")
    assert SECRET not in run(project, ALL, **rules)


@pytest.mark.parametrize(
    ("path", "rules"),
    [
        ("config/prod.yaml", {"blocked_patterns": ["config/prod.yaml"]}),
        ("src/x/d.txt", {"deny_read": ["src/x/d.txt"]}),
        ("src/x/d.txt", {"deny_read": ["src/x"]}),
    ],
)
def test_a_rule_about_a_path_holds_when_its_directories_are_renamed(
    project: Path, path: str, rules: dict[str, object]
) -> None:
    secret(project / path)
    top = path.split("/")[0]
    run(project, f"mv {top} elsewhere", **rules)
    assert SECRET not in run(project, ALL, **rules)
    run(project, "mv elsewhere again", **rules)
    assert SECRET not in run(project, ALL, **rules)


def test_what_a_blocked_link_led_to_stays_blocked_without_the_link(project: Path) -> None:
    secret(project / "config" / "prod.txt")
    (project / ".env").symlink_to("config/prod.txt")
    run(project, "rm .env")
    assert SECRET not in run(project, ALL)
    run(project, "mv config other")
    assert SECRET not in run(project, ALL)


def test_an_owner_who_takes_the_rule_back_gets_the_file_back(project: Path) -> None:
    secret(project / "src" / "x" / "d.txt")
    assert SECRET not in run(project, ALL, deny_read=["src/x/d.txt"])
    assert run(project, "cat src/x/d.txt") == SECRET
    # Moved, it is blocked until it is where it was, or named itself.
    os.rename(project / "src", project / "moved")
    assert SECRET not in run(project, ALL)
    assert run(project, "cat moved/x/d.txt", allow_read=["moved/x/d.txt"]) == SECRET
    os.rename(project / "moved", project / "src")
    assert run(project, "cat src/x/d.txt") == SECRET


def test_a_file_saved_again_under_an_ordinary_name_is_an_ordinary_file(project: Path) -> None:
    secret(project / ".env")
    run(project, "true")
    (project / ".env").unlink()
    for number in range(20):  # some of them get the number of the one that is gone
        (project / f"{number}.txt").write_text("ordinary")
    assert run(project, "cat *.txt") == "ordinary" * 20


def test_what_cannot_be_read_of_the_past_stops_the_start(project: Path, home: Path) -> None:
    secret(project / ".env")
    run(project, "true")
    (home / "blocked").write_bytes(b"nonsense")
    with pytest.raises(SandboxError, match="damaged"):
        run(project, "true")


def test_sandboxes_that_start_together_forget_nothing_of_each_other(tmp_path: Path) -> None:
    start = "import sys; from sandbox import Sandbox; "
    start += "Sandbox({'filesystem': {'root': sys.argv[1], 'deny_read': ['x/y']}})"
    projects = [tmp_path / f"p{number}" for number in range(4)]
    for project in projects:
        secret(project / "x" / "y")
    for process in [subprocess.Popen([sys.executable, "-c", start, str(project)]) for project in projects]:
        assert process.wait() == 0
    for project in projects:
        os.rename(project / "x", project / "z")
        assert SECRET not in run(project, ALL)


# A3


DEEP = """
import os
for number in range(60):
    name = 'd' * 200
    os.mkdir(name); os.chdir(name)
{more}
"""


def test_a_tree_deeper_than_paths_can_be_long_stops_no_later_run(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        assert sandbox.exec(["/usr/bin/python3", "-c", DEEP.format(more="open('x', 'w')")]).exit_code == 0
    assert run(project, "ls | wc -l; echo well") == "1\nwell\n"
    subprocess.run(["rm", "-rf", str(project)], check=True)


def test_a_blocked_file_deeper_than_paths_can_be_long_is_out_of_reach(project: Path) -> None:
    more = f"open('.env', 'w').write('{SECRET}')"
    subprocess.run([sys.executable, "-c", DEEP.format(more=more)], cwd=project, check=True)
    read = DEEP.replace("os.mkdir(name); ", "").format(more="print(open('.env').read())")
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        done = sandbox.exec(["/usr/bin/python3", "-c", read])
    assert SECRET not in done.stdout and done.exit_code != 0
    subprocess.run(["rm", "-rf", str(project)], check=True)


# C2

RENAMES = """
import os, sys
os.chdir(sys.argv[1])
print(flush=True)
while True:
    for a, b in (('one/d', 'two/d'), ('two/d', 'two/e'), ('two/e', 'one/d')):
        os.rename(a, b)
"""


@contextmanager
def renaming(project: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", RENAMES, str(project)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def starts(project: Path, count: int) -> None:
    """Each either does not start, or shows nothing."""
    for _ in range(count):
        try:
            with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
                for _ in range(5):
                    assert SECRET not in sandbox.exec(ALL).stdout
        except WallError:
            pass


def test_a_directory_renamed_on_the_host_during_the_start_uncovers_nothing(project: Path) -> None:
    (project / "two").mkdir()
    secret(project / "one" / "d" / ".env")
    with renaming(project):
        starts(project, 8)
    assert SECRET not in run(project, ALL)


@pytest.mark.soak
def test_nor_in_a_hundred_starts(project: Path) -> None:
    (project / "two").mkdir()
    secret(project / "one" / "d" / ".env")
    with renaming(project):
        starts(project, 100)


def test_nor_does_a_tenant_who_renames_it(project: Path) -> None:
    (project / "two").mkdir()
    secret(project / "one" / "d" / ".env")
    with (
        Sandbox({"filesystem": {"root": str(project)}}) as other,
        other.spawn(["/usr/bin/python3", "-c", RENAMES, str(project)]) as renaming,
    ):
        renaming.read()
        starts(project, 5)


def test_a_start_goes_well_while_a_build_makes_files(project: Path) -> None:
    secret(project / ".env")
    for name in ("a", "b"):
        (project / name).mkdir()
    build = "import os, sys\nos.chdir(sys.argv[1])\nprint(flush=True)\nn = 0\nwhile True:\n  n = (n + 1) % 99\n"
    build += "  for d in 'ab':\n    open(f'{d}/{n}', 'w').close(); os.unlink(f'{d}/{n}')\n"
    process = subprocess.Popen([sys.executable, "-c", build, str(project)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        for _ in range(3):
            assert run(project, "cat .env; echo well") == "well\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# C3


def hooked() -> object:
    class Hooks:
        def before_open(self, path: str, flags: int) -> None:
            pass

    return Hooks()


@pytest.mark.parametrize("way", ["direct", "real_fs", "readonly", "overlay", "served", "served overlay"])
def test_what_a_mount_shows_of_the_host_is_guarded_like_the_project(project: Path, tmp_path: Path, way: str) -> None:
    host = tmp_path / "data"
    secret(host / "sub" / ".env")
    os.link(host / "sub" / ".env", host / "notes.txt")
    secret(host / "src" / "x" / "d.txt")
    (host / ".git" / "hooks").mkdir(parents=True)
    (host / ".git" / "config").write_text("[core]\n")
    (host / "plain.txt").write_text("plain")
    kind = way.removeprefix("served ").replace("served", "real_fs")
    mount: dict[str, object] = {"type": kind, "host_path": str(host)}
    if kind == "overlay":
        mount = {"type": "overlay", "lower": {"type": "real_fs", "host_path": str(host)}}
    vfs = {"direct_mounts": {"/data": {"host_path": str(host)}}} if way == "direct" else {"mounts": {"/data": mount}}
    config = {"filesystem": {"root": str(project), "deny_read": [str(host / "src/x/d.txt")]}, "vfs": vfs}
    if way.startswith("served") and not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no FUSE for this user")
    for _ in range(2):
        with Sandbox(config, hooks=hooked() if way.startswith("served") else None) as sandbox:
            assert sandbox.exec("cat /data/plain.txt").stdout == "plain"
            assert SECRET not in sandbox.exec("cd /data; " + ALL).stdout
            sandbox.exec(
                "cd /data; echo evil > .git/hooks/pre-commit; echo evil >> .git/config; mv .git g; mkdir -p .git/hooks;"
                "echo evil > .git/hooks/pre-commit; mkdir node_modules; mv sub node_modules/; mv src other"
            )
            assert SECRET not in sandbox.exec("cd /data; " + ALL).stdout
    assert (host / ".git" / "config").read_text() == "[core]\n"
    assert not (host / ".git" / "hooks" / "pre-commit").exists()


def test_a_mount_of_the_sandboxs_own_places_is_refused(project: Path, home: Path) -> None:
    home.mkdir()
    with pytest.raises(SandboxError, match="own config"):
        Sandbox({"filesystem": {"root": str(project)}, "vfs": {"direct_mounts": {"/d": {"host_path": str(home)}}}})


# C6


def test_the_file_a_secret_is_read_from_is_out_of_reach(project: Path) -> None:
    token = secret(project / "etc" / "token.txt")
    os.link(token, project / "copy.txt")
    later = secret(project / "later.txt")
    secrets = {"T": {"from_file": str(token), "hosts": ["api.example.com"]}}
    with Sandbox({"filesystem": {"root": str(project)}, "network": {"secrets": secrets}}) as sandbox:
        later.write_text("another value")
        assert SECRET not in sandbox.exec("cat etc/token.txt copy.txt; mv etc x; cat x/token.txt").stdout
        secrets["L"] = {"from_file": str(later), "hosts": ["api.example.com"]}
        sandbox.update_network({"secrets": secrets})
        assert "another" not in sandbox.exec("cat later.txt").stdout
    assert SECRET not in run(project, ALL)
    assert "another" not in run(project, ALL)


# C4

PLACES = (
    ".netrc", ".npmrc", ".pypirc", ".kube/config", ".docker/config.json", ".config/gh/hosts.yml", ".bash_history",
    ".config/gcloud/credentials.db", ".azure/token", ".password-store/x.gpg", ".mozilla/logins.json", ".bashrc",
    ".local/share/keyrings/login.keyring", ".never-heard-of/token",
)  # fmt: skip


@pytest.mark.parametrize("where", [".", "me"])
def test_a_home_that_is_the_project_keeps_its_dot_files_to_itself(
    project: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(os.path.normpath(project / where))
    monkeypatch.setenv("HOME", str(place))
    for name in PLACES:
        secret(place / name)
    tool = place / ".local" / "bin" / "mytool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho works\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    (place / "code.py").write_text("code")
    (place / ".gitignore").write_text("ignored")
    secret(place / ".config" / "wanted" / "x")
    with Sandbox({"filesystem": {"root": str(project), "allow_read": [str(place / ".config/wanted")]}}) as sandbox:
        seen = sandbox.exec(f"cd {place}; cat code.py .gitignore; mytool; cat {' '.join(PLACES)}").stdout
        # Where a directory above is the project, the home is the sandbox's own, and empty.
        assert seen == ("codeignoredworks\n" if where == "." else "")
        assert sandbox.exec(["cat", str(place / ".config/wanted/x")]).stdout == SECRET
        # Programs keep things there, which go with the sandbox.
        assert sandbox.exec(f"mkdir -p {place}/.config/app && echo x > {place}/.config/app/y").exit_code == 0
    assert not (place / ".config" / "app").exists()
    assert SECRET not in run(project, ALL)
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        assert SECRET not in sandbox.exec(ALL).stdout


def test_dot_files_that_are_links_to_a_directory_of_the_home_are_hidden_too(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project))
    secret(project / "dotfiles" / "netrc")
    secret(project / "dotfiles" / "mail" / "password")
    (project / "dotfiles" / "README").write_text("for everybody")
    secret(project / "dotfiles" / "wanted")
    for link, target in ((".netrc", "netrc"), (".mail", "mail"), (".wanted", "wanted")):
        (project / link).symlink_to(f"dotfiles/{target}")
    allowed = {"allow_read": [str(project / "dotfiles" / "wanted")]}
    move = "rm .netrc; mv dotfiles away; cat */netrc */mail/password .netrc .mail/password"
    assert SECRET not in run(project, move)
    secrets = "dotfiles/netrc dotfiles/mail/password"
    assert run(project, f"cat dotfiles/README; cat {secrets}", **allowed) == "for everybody"
    assert run(project, "cat dotfiles/wanted", **allowed) == SECRET


def test_names_that_tenants_make_push_no_file_of_the_person_out_of_what_is_remembered(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.guards.blocked_files.MOST", 40)
    secret(project / "conf" / "private.txt")
    run(project, "mkdir d; for i in $(seq 60); do mkdir d/$i; echo x > d/$i/.env; done")
    run(project, "true")  # finds them
    rules = {"deny_read": ["conf/private.txt"]}  # is written down last
    run(project, "mv conf elsewhere", **rules)
    assert SECRET not in run(project, ALL, **rules)
    assert (project / "elsewhere" / "private.txt").read_text() == SECRET
