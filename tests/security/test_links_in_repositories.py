"""git writes through symbolic links in its own directory. None that a tenant made is left there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.security.test_git_ways import Person, Way

pytestmark = pytest.mark.walls

OUTSIDE = "../../person/.bashrc"  # from `.git`
PLANTS = {
    "a message": f"rm -f .git/COMMIT_EDITMSG; ln -s {OUTSIDE} .git/COMMIT_EDITMSG",
    "a log": f"rm -f .git/logs/HEAD; ln -s ../{OUTSIDE} .git/logs/HEAD",
    "a directory of logs": "rm -r .git/logs; ln -s ../../person .git/logs",
    "the index": f"mv .git/index x; ln -s {OUTSIDE} .git/index",
    "a ref": f"ln -s ../../{OUTSIDE} .git/refs/heads/x",
    "what was fetched, of its own repository": f"git init -q lib; ln -s ../{OUTSIDE} lib/.git/FETCH_HEAD",
    "in a directory that was moved in": "rm -r .git/logs; mkdir -p d/refs/heads;"
    f"ln -s ../../../{OUTSIDE} d/refs/heads/main; ln -s ../{OUTSIDE} d/HEAD; mv d .git/logs",
    "in a directory of an earlier run": f"mkdir -p d/refs/heads; ln -s ../../../{OUTSIDE} d/refs/heads/main"
    "\n---\nrm -r .git/logs; mv d .git/logs",
    "under the name of what was moved aside": "git checkout -qb x.from-sandbox; rm .git/logs/refs/heads/x.from-sandbox;"
    f"ln -s ../../../{OUTSIDE} .git/logs/refs/heads/x.from-sandbox",
    "under a name that is as long as can be": f"ln -s {OUTSIDE} .git/$(head -c 255 /dev/zero | tr '\\0' x)",
    "in a directory that nobody may list": "mkdir .git/x; ln -s config .git/x/y; chmod 0300 .git/x",
}
every = pytest.mark.parametrize("plant", PLANTS.values(), ids=list(PLANTS))


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    made = Person(tmp_path, monkeypatch, Way("", ""))
    (made.home / ".bashrc").write_text("# mine\n")
    return made


def links(project: Path) -> list[str]:
    """The links in the project's repositories."""
    found = []
    for top in (project / ".git", project / "lib" / ".git"):
        for directory, below, names in os.walk(top):
            paths = [Path(directory, name) for name in (*below, *names)]
            found += [str(one.relative_to(project)) for one in paths if one.is_symlink()]
    return sorted(found)


@every
def test_git_of_the_host_writes_through_no_link_of_a_tenants(plant: str, person: Person) -> None:
    told = []
    for one in plant.split("\n---\n"):
        with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
            assert sandbox.exec(["sh", "-c", one]).ok
        told += sandbox._undone
    assert links(person.project) == []
    assert told and all(saved for _, saved in told)
    person.does("git add -A; git commit -qm x; git fetch . main; git checkout -qb other; cd lib && git fetch .. main")
    assert (person.home / ".bashrc").read_text() == "# mine\n"
    assert set(os.listdir(person.home)) <= {".bashrc", ".gitconfig", ".sandbox"}


@every
def test_apply_carries_no_link_into_a_repository(plant: str, person: Person) -> None:
    with Sandbox({"filesystem": {"root": str(person.project), "overlay": True}}) as sandbox:
        for one in plant.split("\n---\n"):
            sandbox.exec(["sh", "-c", one])
    sandbox.apply()
    assert links(person.project) == []


def test_apply_makes_no_repository_around_a_link_of_an_earlier_overlay(person: Person) -> None:
    for plant in ("mkdir lib; ln -s ../file lib/COMMIT_EDITMSG", "git init -q --bare x; mv x/* lib; echo b > b"):
        with Sandbox({"filesystem": {"root": str(person.project), "overlay": True}}) as sandbox:
            assert sandbox.exec(["sh", "-c", plant]).ok
        sandbox.apply()
    assert (person.project / "b").exists()
    assert not (person.project / "lib" / "HEAD").exists()


def test_it_is_undone_while_the_sandbox_runs(person: Person) -> None:
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        assert sandbox._guard.wait_until_watching(30)
        sandbox.exec("ln -s config .git/NEW; git init -q lib; ln -s config lib/.git/NEW")
        sandbox._guard.catch_up(10)
        assert links(person.project) == []
    told = [path for path, _ in sandbox._undone]
    assert sorted(told) == [str(person.project / one) for one in (".git/NEW", "lib/.git/NEW")]  # once each
    assert (person.project / ".git" / "NEW.from-sandbox").read_text() == "config\n"


def test_links_of_the_person_stay_and_lead_where_they_led(person: Person) -> None:
    person.does("mkdir store; mv .git/objects store/; ln -s ../store/objects .git/objects; ln -s config .git/mine")
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        assert sandbox.exec("echo b > b; git add b; git commit -qm b").ok
    assert sandbox._undone == []
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        sandbox.exec(f"ln -sfn {OUTSIDE} .git/mine")
    assert links(person.project) == [".git/mine", ".git/objects"]
    assert os.readlink(person.project / ".git" / "mine") == "config"


@pytest.fixture
def bare(tmp_path: Path, person: Person) -> Path:
    """A bare repository with a work tree in it, as people keep several of one project side by side."""
    made = tmp_path / "bare"
    for words in (f"clone -q --bare {person.project} {made}", f"-C {made} worktree add -q main"):
        subprocess.run(["git", *words.split()], check=True)
    return made


WORK = "mkdir -p node_modules/.bin; ln -s ../tool node_modules/.bin/tool; ln -s a b"


def test_links_in_a_work_tree_within_a_bare_repository_are_the_tenants_own(bare: Path) -> None:
    with Sandbox({"filesystem": {"root": str(bare)}}) as sandbox:
        assert sandbox._guard.wait_until_watching(60)
        assert sandbox.exec(["sh", "-c", f"cd main; {WORK}"]).ok
        sandbox._guard.catch_up(60)
    assert os.readlink(bare / "main/node_modules/.bin/tool") == "../tool" and os.readlink(bare / "main/b") == "a"
    assert sandbox._undone == []


def test_links_in_a_work_tree_within_a_bare_repository_are_applied(bare: Path) -> None:
    with Sandbox({"filesystem": {"root": str(bare), "overlay": True}}) as sandbox:
        assert sandbox.exec(["sh", "-c", f"cd main; {WORK}; ln -s /etc/x ../COMMIT_EDITMSG"]).ok
    done = sandbox.apply()
    assert [path for path, _ in done.refused] == ["COMMIT_EDITMSG"]
    assert os.readlink(bare / "main/b") == "a"


@pytest.mark.parametrize("place", ["COMMIT_EDITMSG", "logs/HEAD", "refs/heads/x", "worktrees/main/ORIG_HEAD"])
def test_no_other_link_stays_in_a_bare_repository(bare: Path, place: str) -> None:
    """Nor do those in a directory that a tenant, in an earlier run, made look like a work tree."""
    above = os.path.dirname(place) or "."
    for command in (
        f"mkdir -p {above}; [ {above} = . ] || cp main/.git {above}/.git",
        f"rm -f {place}; ln -s ../../person/.bashrc {place}",
    ):
        with Sandbox({"filesystem": {"root": str(bare)}}) as sandbox:
            assert sandbox.exec(["sh", "-c", command]).ok
    assert not (bare / place).is_symlink()
