"""The ways by which git of the host would run what a tenant wrote, each against the git that is installed.

Every way is first tried without a sandbox, which shows that it is one; then a tenant plants it, in one run or over
several, and a person does on the host what people do. Nothing of the tenant's may run, and the person is told.
"""

# ruff: noqa: E501 - a table of scripts

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.patience import until

# `$RAN` is a program that leaves a mark outside the project. A tenant cannot: the place is not there inside.
NEW = "git init -q lib && cd lib && git commit -q --allow-empty -m x && cd .. &&"
GITLINK = "git add lib 2>/dev/null;"
CONFIG = "cat >> lib/.git/config"

STRATEGY = "mkdir git-merge-x; printf '#!/bin/sh\\n$RAN\\n' > git-merge-x/run; chmod +x git-merge-x/run;"
REBASE = (
    "mkdir .git/rebase-merge; echo refs/heads/main > .git/rebase-merge/head-name;"
    "git rev-parse HEAD | tee .git/rebase-merge/onto > .git/rebase-merge/orig-head; : > .git/rebase-merge/interactive;"
    "echo 1 > .git/rebase-merge/msgnum; echo 1 > .git/rebase-merge/end; : > .git/rebase-merge/done;"
)
CHERRY_PICK = STRATEGY + (
    "git checkout -q -b f; echo f > f; git add f; git commit -qm f; git checkout -q main;"
    "git commit -q --allow-empty -m o; mkdir .git/sequencer; git rev-parse HEAD > .git/sequencer/head;"
    "git log -1 --format='pick %H f%npick %H f' f > .git/sequencer/todo;"
)
# git refuses the name; the file can be written without git.
HOOK_IN_INDEX = r"""mkdir -p +git/hooks; printf '#!/bin/sh\n$RAN\n' > +git/hooks/pre-commit; chmod +x +git/hooks/pre-commit
git add +git; git update-index --index-version VERSION; rm -r +git; python3 -c '
import hashlib
data = open(".git/index", "rb").read()[:-20].partition(b"TREE")[0].replace(b"+git/", b".git/")
open(".git/index", "wb").write(data + hashlib.sha1(data).digest())'
"""


@dataclass
class Way:
    name: str
    plant: str
    """What the tenant does. `---` begins another run."""
    before: str = ""
    """What the person had, and trusted."""
    after: str = ""
    """What the person does on the host, beside the usual."""
    personal: str = ""
    """In the person's own configuration."""
    silent: bool = False
    """It comes to nothing: there is nothing to tell."""


def setting(name: str, text: str, after: str = "", also: str = "") -> Way:
    """In a nested repository that is part of the project as a gitlink."""
    return Way(name, f"{NEW} {also} printf '%s\\n' '{text}' >> lib/.git/config; {GITLINK} true", after=after)


ATTRIBUTES = "echo '* filter=x diff=x merge=x' > lib/.gitattributes; echo a > lib/f; git -C lib add f .gitattributes;"
CHANGED = "cd lib; echo b >> f; git add f; echo c >> f; git diff; git diff HEAD; git commit -qam x"

WAYS = [
    setting("fsmonitor of a gitlink", "[core]\n\tfsmonitor = $RAN;false"),
    setting("fsmonitor on the section's line", "[core] fsmonitor = $RAN;false"),
    setting("fsmonitor in odd letters", "[CoRe]\n\tfsMONITOR = \"$RAN;false\""),
    setting("hooksPath", "[core]\n\thooksPath = h", "cd lib; git commit -q --allow-empty -m y",
            "mkdir lib/h; printf '#!/bin/sh\\n$RAN\\n' > lib/h/pre-commit; chmod +x lib/h/pre-commit;"),
    setting("include.path", "[include]\n\tpath = ../../extra", also="printf '[core]\\n\\tfsmonitor=$RAN;false\\n' > extra;"),
    setting("includeIf", "[includeIf \"gitdir:**\"]\n\tpath = ../../extra",
            also="printf '[core]\\n\\tfsmonitor=$RAN;false\\n' > extra;"),
    setting("filter.clean", "[filter \"x\"]\n\tclean = $RAN;cat", CHANGED, ATTRIBUTES),
    setting("filter.process", "[filter \"x\"]\n\tprocess = $RAN;cat", CHANGED, ATTRIBUTES),
    setting("textconv", "[diff \"x\"]\n\ttextconv = $RAN;cat", CHANGED, ATTRIBUTES),
    setting("diff.command", "[diff \"x\"]\n\tcommand = $RAN;true", CHANGED, ATTRIBUTES),
    setting("diff.external", "[diff]\n\texternal = $RAN;true", CHANGED, ATTRIBUTES),
    setting("filter.smudge", "[filter \"x\"]\n\tsmudge = $RAN;cat", "cd lib; rm f; git checkout -q f", ATTRIBUTES),
    setting("merge driver", "[merge \"x\"]\n\tdriver = $RAN;false", "cd lib; git merge other",
            ATTRIBUTES + "(cd lib; git commit -qm f; git checkout -qb other; echo o > f; git commit -qam o; git checkout -q -;"
            "echo m > f; git commit -qam m);"),
    setting("sequence.editor", "[sequence]\n\teditor = $RAN;true", "cd lib; git rebase -i --root"),
    setting("receivepack", "[remote \"origin\"]\n\turl = .\n\treceivepack = $RAN;false", "cd lib; git push origin HEAD:x"),
    setting("pager.log", "[pager]\n\tlog = $RAN;cat", "cd lib; script -qec 'git log' /dev/null"),
    setting("gpg.ssh.program", "[commit]\n\tgpgsign = true\n[user]\n\tsigningKey = k\n[gpg]\n\tformat = ssh\n[gpg \"ssh\"]\n\tprogram = $RANFILE",
            "cd lib; git commit -q --allow-empty -m z"),
    setting("askPass", "[core]\n\taskPass = $RANFILE",
            "cd lib; printf 'protocol=https\\nhost=x\\n\\n' | setsid git credential fill"),
    setting("sshCommand", "[core]\n\tsshCommand = $RAN;false\n[remote \"origin\"]\n\turl = ssh://127.0.0.1/x", "cd lib; git fetch"),
    setting("gitProxy", "[core]\n\tgitProxy = $RANFILE\n[remote \"origin\"]\n\turl = git://127.0.0.1:1/x", "cd lib; git fetch"),
    setting("ext::", "[protocol \"ext\"]\n\tallow = always\n[remote \"origin\"]\n\turl = \"ext::$RAN\"", "cd lib; git fetch"),
    setting("insteadOf", "[protocol \"ext\"]\n\tallow = always\n[url \"ext::$RAN \"]\n\tinsteadOf = https://\n[remote \"origin\"]\n\turl = https://127.0.0.1:1/x",
            "cd lib; git fetch"),
    setting("uploadpack", "[remote \"origin\"]\n\turl = .\n\tuploadpack = $RAN;false", "cd lib; git fetch"),
    setting("credential.helper", "[credential]\n\thelper = !$RAN;false",
            "cd lib; printf 'protocol=https\\nhost=x\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill"),
    setting("core.editor", "[core]\n\teditor = $RAN;true", "cd lib; git commit --allow-empty"),
    setting("gpg.program", "[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = $RANFILE", "cd lib; git commit -q --allow-empty -m z"),
    setting("alias", "[alias]\n\tst = !$RAN", "cd lib; git st"),
    setting("pager", "[core]\n\tpager = $RAN;cat", "cd lib; script -qec 'git log' /dev/null"),
    setting("trailer", "[trailer \"x\"]\n\tcmd = $RAN;echo", "cd lib; echo a | git interpret-trailers --trailer x=1"),
    setting("submodule update", "[submodule \"s\"]\n\turl = ./s\n\tupdate = !$RAN",
            "cd lib; git submodule update",
            "git init -q lib/s; git -C lib/s commit -q --allow-empty -m x;"
            "printf '[submodule \"s\"]\\n\\tpath = s\\n\\turl = ./s\\n' > lib/.gitmodules; git -C lib add s .gitmodules 2>/dev/null;"
            "git -C lib/s commit -q --allow-empty -m y;"),
    setting("worktreeConfig", "[extensions]\n\tworktreeConfig = true",
            also="printf '[core]\\n\\tfsmonitor=$RAN;false\\n' > lib/.git/config.worktree;"),
    *(
        Way(f"hooks/{hook}", f"{NEW} printf '#!/bin/sh\\n$RAN\\n' > lib/.git/hooks/{hook}; chmod +x lib/.git/hooks/{hook}",
            after="cd lib; echo a > f; git add f; git commit -qm x; git checkout -q -b other")
        for hook in ("pre-commit", "post-checkout", "post-index-change", "reference-transaction", "commit-msg")
    ),
    Way("hooks as a link", f"{NEW} rm -r lib/.git/hooks; mkdir h; printf '#!/bin/sh\\n$RAN\\n' > h/pre-commit;"
        "chmod +x h/pre-commit; ln -s ../../h lib/.git/hooks", after="cd lib; git commit -q --allow-empty -m x"),
    Way("separate git directory", "git init -q --separate-git-dir=gd sub; git -C sub commit -q --allow-empty -m x;"
        "git -C sub config core.worktree ..; git -C sub config core.fsmonitor '$RAN;false'; true", after="cd gd && git status"),
    Way("separate git directory as a gitlink", "git init -q --separate-git-dir=gd sub; git -C sub commit -q --allow-empty -m x;"
        "git add sub 2>/dev/null; git -C sub config core.fsmonitor '$RAN;false'; true"),
    Way("bare repository", "git init -q --bare docs; git -C docs config core.bare false;"
        "git -C docs config core.worktree .; git -C docs config core.fsmonitor '$RAN;false'; true", after="cd docs && git status"),
    Way("config as a link", f"{NEW} cp lib/.git/config c; printf '[core]\\n\\tfsmonitor=$RAN;false\\n' >> c;"
        "ln -sf ../../c lib/.git/config; git add lib 2>/dev/null; true"),
    Way("a directory that cannot be listed", f"{NEW} printf '[core]\\n\\tfsmonitor=$RAN;false\\n' >> lib/.git/config;"
        f"{GITLINK} chmod 0311 lib/.git"),
    Way("a directory that cannot be written", f"{NEW} printf '[core]\\n\\tfsmonitor=$RAN;false\\n' >> lib/.git/config;"
        f"{GITLINK} chmod 0555 lib/.git"),
    Way(".git as a link", f"{NEW} mv lib/.git lib/other; ln -s other lib/.git;"
        f"printf '[core]\\n\\tfsmonitor=$RAN;false\\n' >> lib/other/config; {GITLINK} true"),
    Way("common directory without HEAD", f"{NEW} mkdir e; cp -r lib/.git/objects lib/.git/refs lib/.git/config e/;"
        "printf '[core]\\n\\tfsmonitor=$RAN;false\\n' >> e/config; echo ../../e > lib/.git/commondir; git add lib 2>/dev/null; true"),
    Way("a further work tree's", "mkdir -p e .git/worktrees/w; cp -r .git/objects .git/refs .git/config e/;"
        "printf '[core]\\n\\tfsmonitor=$RAN;false\\n' >> e/config; cp .git/HEAD .git/worktrees/w/;"
        "echo ../../../e > .git/worktrees/w/commondir; mkdir w; echo \"gitdir: ../.git/worktrees/w\" > w/.git;"
        "echo \"$PWD/w/.git\" > .git/worktrees/w/gitdir", after="cd w && git status"),
    Way("redirection of the project's own", "mkdir e; cp -r .git/objects .git/refs .git/HEAD .git/config e/;"
        "printf '[core]\\n\\tfsmonitor=$RAN;false\\n' >> e/config; echo ../e > .git/commondir"),
    Way("a rebase under way", "mkdir .git/rebase-merge; echo refs/heads/main > .git/rebase-merge/head-name;"
        "git rev-parse HEAD | tee .git/rebase-merge/onto > .git/rebase-merge/orig-head; : > .git/rebase-merge/interactive;"
        "echo 1 > .git/rebase-merge/msgnum; echo 1 > .git/rebase-merge/end; : > .git/rebase-merge/done;"
        "printf 'exec $RAN\\n' > .git/rebase-merge/git-rebase-todo", after="git rebase --continue"),
    Way("a rebase under way, behind a link", REBASE.replace(".git/rebase-merge", "x") + "printf 'exec $RAN\\n' > x/git-rebase-todo;"
        "ln -s ../x .git/rebase-merge", after="git rebase --continue"),
    Way("a rebase under way, after a megabyte", REBASE + "(printf '# '; head -c 1100000 /dev/zero | tr '\\0' 'x'; printf '\\nexec $RAN\\n')"
        " > .git/rebase-merge/git-rebase-todo", after="git rebase --continue"),
    Way("a cherry-pick's strategy, after a megabyte", CHERRY_PICK + "(head -c 1100000 /dev/zero | tr '\\0' '\\n';"
        "printf '[options]\\n\\tstrategy = x/run\\n') > .git/sequencer/opts", after="git cherry-pick --continue"),
    Way("a cherry-pick's strategy, behind a link", CHERRY_PICK + "printf '[options]\\n\\tstrategy = x/run\\n' > .git/sequencer/opts;"
        "mv .git/sequencer y; ln -s ../y .git/sequencer", after="git cherry-pick --continue"),
    Way("a hook whose other names are taken", f"{NEW} cd lib/.git/hooks; mkdir pre-commit.from-sandbox;"
        "seq -f 'pre-commit.from-sandbox-%.0f' 2 1000 | xargs mkdir; printf '#!/bin/sh\\n$RAN\\n' > pre-commit; chmod +x pre-commit",
        after="cd lib; git commit -q --allow-empty -m x"),
    Way("a rebase's strategy", STRATEGY + "git checkout -q -b f; echo f > f; git add f; git commit -qm f; git checkout -q main;"
        "git commit -q --allow-empty -m o; git checkout -q f; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -i main;"
        "echo x/run > .git/rebase-merge/strategy", after="git rebase --continue"),
    Way("a cherry-pick's strategy", STRATEGY + "git checkout -q -b f; echo f > f; git add f; git commit -qm f; git checkout -q main;"
        "git commit -q --allow-empty -m o; mkdir .git/sequencer; git rev-parse HEAD > .git/sequencer/head;"
        "git log -1 --format='pick %H f%npick %H f' f > .git/sequencer/todo; printf '[options]\\n\\tstrategy = x/run\\n' > .git/sequencer/opts",
        after="git cherry-pick --continue"),
    *(
        Way(f"an index that names a hook{name}", f"{there} {HOOK_IN_INDEX.replace('VERSION', version)}",
            after=f"{there} git restore .; git commit -q --allow-empty -m x")
        for name, there, version in (
            ("", "", "2"),
            (", in names cut short", "", "4"),
            (", of a tenant's own", f"{NEW.removesuffix('&&')}; cd lib;", "2"),
        )
    ),
    *(
        Way(f"{name}, behind a link", f"{plant} printf '[core]\\n\\tfsmonitor = $RAN;false\\n' > {git}/SQUASH_MSG;"
            f"rm -f {git}/COMMIT_EDITMSG; ln -s {config} {git}/COMMIT_EDITMSG", after=f"cd {tree}; git commit --allow-empty; git status")
        for name, plant, tree, git, config in (
            ("a commit's message", "", ".", ".git", "config"),
            ("a nested repository's message", NEW.removesuffix("&&") + ";", "lib", "lib/.git", "config"),
            ("a further work tree's message", "git worktree add -q tree;", "tree", ".git/worktrees/tree", "../../config"),
        )
    ),
    # Over two runs
    Way("made complete later", f"{NEW} printf '[core]\\n\\tfsmonitor=$RAN;false\\n' >> lib/.git/config; {GITLINK}"
        "mv lib/.git/HEAD lib/.git/H\n---\nmv lib/.git/H lib/.git/HEAD"),
    Way("through another name", f"{NEW} {GITLINK} ln lib/.git/config lib/alias\n---\n"
        "printf '[core]\\n\\tfsmonitor=$RAN;false\\n' >> lib/alias", silent=True),
    Way("through a link that is turned", f"{NEW} {GITLINK} mv lib/.git good; cp -r good bad; ln -s good link;"
        "echo 'gitdir: ../link' > lib/.git; printf '[core]\\n\\tfsmonitor=$RAN;false\\n' >> bad/config;"
        "mv bad/HEAD bad/H\n---\nmv bad/H bad/HEAD; ln -sfn bad link"),
    # What the person had
    Way("config.worktree of a trusted one", "printf '[core]\\n\\tfsmonitor=$RAN;false\\n' > .git/config.worktree",
        "git config extensions.worktreeConfig true"),
    Way("an edited hook", "printf '#!/bin/sh\\n$RAN\\n' > .husky/pre-commit",
        "mkdir .husky; printf '#!/bin/sh\\ntrue\\n' > .husky/pre-commit; chmod +x .husky/pre-commit; git config core.hooksPath .husky"),
    Way("husky's, beside its directory", "printf '#!/bin/sh\\n$RAN\\n' > .husky/pre-commit",
        "mkdir -p .husky/_; printf '#!/bin/sh\\nsh .husky/pre-commit\\n' > .husky/_/pre-commit; chmod +x .husky/_/pre-commit;"
        "echo true > .husky/pre-commit; git config core.hooksPath .husky/_"),
    Way("a hooks directory that was not there",
        "mkdir -p tools/h; printf '#!/bin/sh\\n$RAN\\n' > tools/h/pre-commit; chmod +x tools/h/pre-commit",
        "git config core.hooksPath tools/h"),
    Way("a script that a hook calls", "printf '$RAN\\n' > scripts/check",
        "mkdir scripts; echo true > scripts/check; printf '#!/bin/sh\\nsh ./scripts/check\\n' > .git/hooks/pre-commit;"
        "chmod +x .git/hooks/pre-commit"),
    Way("an included file", "printf '[core]\\n\\tfsmonitor=$RAN;false\\n' > extra.cfg", "touch extra.cfg; git config include.path ../extra.cfg"),
    Way("an included file that was not there", "printf '[core]\\n\\tfsmonitor=$RAN;false\\n' > extra.cfg", "git config include.path ../extra.cfg"),
    Way("a conditionally included file", "printf '[core]\\n\\tfsmonitor=$RAN;false\\n' > extra.cfg",
        "touch extra.cfg; git config includeIf.gitdir:**.path ../extra.cfg"),
    Way("a filter of the project's", "echo '* filter=x' > .gitattributes; printf '$RAN; cat\\n' > tools/clean",
        "mkdir tools; echo cat > tools/clean; git config filter.x.clean 'sh tools/clean'"),
    Way("a filter that was not there", "echo '* filter=x' > .gitattributes; mkdir tools;"
        "printf '#!/bin/sh\\n$RAN; cat\\n' > tools/clean; chmod +x tools/clean", "git config filter.x.clean ./tools/clean"),
    Way("a filter's script that was not there", "echo '* filter=x' > .gitattributes; mkdir tools; printf '$RAN; cat\\n' > tools/clean",
        "git config filter.x.clean 'sh tools/clean'"),
    Way("a textconv's script that was not there", "echo '* diff=x' > .gitattributes; printf '$RAN; cat $1\\n' > conv.sh",
        "git config diff.x.textconv 'sh conv.sh'"),
    Way("a textconv of the project's", "echo '* diff=x' > .gitattributes; printf '$RAN; cat\\n' > tools/conv",
        "mkdir tools; echo cat > tools/conv; git config diff.x.textconv 'sh tools/conv'"),
    Way("a link to hooks that is turned", "mkdir evil; printf '#!/bin/sh\\n$RAN\\n' > evil/pre-commit; chmod +x evil/pre-commit;"
        "ln -sfn ../evil .git/hooks", "mkdir tools; rm -r .git/hooks; ln -s ../tools .git/hooks"),
    Way("hooks that the person's own settings look for",
        "mkdir .githooks; printf '#!/bin/sh\\n$RAN\\n' > .githooks/pre-commit; chmod +x .githooks/pre-commit",
        personal="[core]\n\thooksPath = .githooks\n"),
    Way("and in a new repository",
        f"{NEW} mkdir lib/.githooks; printf '#!/bin/sh\\n$RAN\\n' > lib/.githooks/pre-commit; chmod +x lib/.githooks/pre-commit",
        after="cd lib; git commit -q --allow-empty -m y", personal="[core]\n\thooksPath = .githooks\n"),
]  # fmt: skip

USUAL = """
git status; git rev-parse --abbrev-ref HEAD; git branch; git log -1; echo more >> file; git diff; git stash list
git add -A; git commit -qm change; git fetch --all; git stash; git submodule update; git status
cd lib 2>/dev/null && { git status; git rev-parse --abbrev-ref HEAD; }
"""


class Person:
    """Somebody with a home, a repository and the mark that nothing of a tenant's may leave."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch, way: Way) -> None:
        self.project, self.mark, self.home = place / "project", place / "ran", place / "person"
        self.home.mkdir(parents=True)
        self.program = place / "leave-mark"
        self.program.write_text(f"#!/bin/sh\ntouch {self.mark}\n")
        self.program.chmod(0o755)
        identity = "[user]\n\tname = P\n\temail = p@example.org\n[init]\n\tdefaultBranch = main\n"
        (self.home / ".gitconfig").write_text(identity + way.personal)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("EDITOR", "true")
        self.project.mkdir(exist_ok=True)
        self.does("git init -q; echo a > file; git add file; git commit -qm first")
        self.does(way.before)

    def filled(self, text: str) -> str:
        return text.replace("$RANFILE", str(self.program)).replace("$RAN", f"touch {self.mark}")

    def does(self, script: str) -> None:
        words = ["sh", "-c", script]
        subprocess.run(words, cwd=self.project, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)

    def does_the_usual(self, way: Way) -> None:
        self.does(way.after or "true")
        self.does(USUAL)


@pytest.fixture
def person(way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    return Person(tmp_path, monkeypatch, way)


def every_way(ways: list[Way] = WAYS) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("way", ways, ids=[way.name for way in ways])


@every_way()
def test_it_is_a_way(way: Way, person: Person) -> None:
    for plant in way.plant.split("\n---\n"):
        person.does(person.filled(plant))
    person.does_the_usual(way)
    assert person.mark.exists()


@every_way()
def test_git_of_the_host_runs_nothing_of_a_tenants(way: Way, person: Person) -> None:
    told = refused = False
    for plant in way.plant.split("\n---\n"):
        with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
            told_how = sandbox.exec(["sh", "-c", person.filled(plant)])
            refused = refused or "busy" in told_how.stderr or "Read-only" in told_how.stderr
        told = told or bool(sandbox._undone)
    person.does_the_usual(way)
    assert not person.mark.exists()
    assert told or refused or way.silent
    assert os.path.isdir(person.project / ".git")


# -- changes that are carried over from an overlay


OVERLAID = [way for way in WAYS if "\n---\n" not in way.plant and "cannot be" not in way.name]


@every_way(OVERLAID)
def test_apply_carries_nothing_over_that_git_would_run(way: Way, person: Person) -> None:
    config = {"filesystem": {"root": str(person.project), "overlay": True}}
    with Sandbox(config) as sandbox:
        refused = sandbox.exec(["sh", "-c", person.filled(way.plant)]).stderr
    done = sandbox.apply()
    person.does_the_usual(way)
    assert not person.mark.exists()
    assert done.refused or "busy" in refused or "Read-only" in refused


def test_apply_makes_no_repository_of_the_project_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(tmp_path, monkeypatch, Way("", "", before="rm -rf .git"))
    bare = "git init -q --bare x; mv x/* .; rmdir x; git config -f config core.bare false; git config -f config core.worktree ."
    with Sandbox({"filesystem": {"root": str(person.project), "overlay": True}}) as sandbox:
        plant = f"{bare}; git config -f config core.fsmonitor '$RAN;false'; echo b > new; ln -s config COMMIT_EDITMSG"
        assert sandbox.exec(["sh", "-c", person.filled(plant)]).ok
    sandbox.apply()
    person.does("git status")
    assert not person.mark.exists()
    assert (person.project / "new").read_text() == "b\n"


def test_apply_loses_no_commit_of_a_branch_made_on_the_host_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    person.does("git checkout -qb old; echo b > b; git add b; git commit -qm precious; git checkout -q main; git gc -q")
    with Sandbox({"filesystem": {"root": str(person.project), "overlay": True}}) as sandbox:
        sandbox.exec("git branch -D old; git reflog expire --expire=now --all; git gc -q --prune=now")
    person.does("git branch kept old")
    assert sandbox.apply().refused == []
    assert sandbox.changes() == []
    shown = subprocess.run(["git", "show", "kept:b"], cwd=person.project, capture_output=True, text=True, check=False)
    assert shown.stdout == "b\n"
    subprocess.run(["git", "fsck"], cwd=person.project, check=True)


# -- what people and tenants do with git works on


def test_a_tenants_clone_is_whole_and_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        done = sandbox.exec("git clone -q . copy && cd copy && git checkout -q -b other && git worktree add -q ../tree")
        assert (done.exit_code, done.stderr) == (0, "")
        assert sandbox.exec("git worktree add -q second && cd second && git status").exit_code == 0
    assert sandbox._undone == []
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        assert sandbox.exec("git -C copy log -1 && git -C tree status && git -C second status").exit_code == 0
    assert sandbox._undone == []


def test_a_sparse_or_shared_repository_of_a_tenants_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        sparse = "git clone -q --sparse . copy && cd copy && git sparse-checkout set x && git sparse-checkout disable"
        assert sandbox.exec(sparse).exit_code == 0
        sandbox.exec("git init -q --bare shared.git && git -C shared.git config receive.denyNonFastforwards true")
    assert sandbox._undone == []


def test_a_person_can_make_a_checkout_sparse_while_a_sandbox_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    person.does(
        "mkdir in out; touch in/f out/f; git add .; git commit -qm more; git config extensions.worktreeConfig true"
    )
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        sandbox._guard.wait_until_watching()
        person.does("git sparse-checkout set in")
    assert sandbox._undone == []
    person.does("git checkout main")
    assert "sparseCheckout = true" in (person.project / ".git" / "config.worktree").read_text()
    assert not (person.project / "out").exists()


def test_a_tenant_can_stash_and_clean_away_what_is_not_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(tmp_path / 'odd [n*me] "', monkeypatch, Way("", ""))
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        done = sandbox.exec("echo b > file; echo new > new; git stash -u && git status --short")
        assert (done.exit_code, done.stderr) == (0, "")
        assert sandbox.exec("git stash pop && cat file new").stdout.endswith("b\nnew\n")
        done = sandbox.exec("git clean -fd")
        assert (done.exit_code, done.stderr, done.stdout) == (0, "", "Removing new\n")
        # A clone may have directories of these names, and is another repository.
        added = sandbox.exec("git clone -q . copy; mkdir copy/.vscode; touch copy/.vscode/x; git -C copy add -v .")
        assert added.stdout == "add '.vscode/x'\n"


def test_what_is_harmless_stays_and_the_rest_is_kept_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        sandbox.exec("git clone -q . copy; git -C copy config core.fsmonitor evil")
    config = person.project / "copy" / ".git" / "config"
    assert sandbox._undone == [(str(config), f"{config}.from-sandbox")]
    assert "evil" in Path(f"{config}.from-sandbox").read_text()
    listed = subprocess.run(["git", "config", "-f", config, "-l"], capture_output=True, text=True, check=True).stdout
    assert "remote.origin.url" in listed and "branch.main.merge" in listed and "fsmonitor" not in listed


def test_while_the_sandbox_runs_it_is_undone_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        sandbox._guard.wait_until_watching()
        gone = "while grep -q fsmonitor lib/.git/config; do :; done"
        assert sandbox.exec(f"git init -q lib; git -C lib config core.fsmonitor x; {gone}", timeout=60).exit_code == 0
        again = f"printf '[core]\\n\\tfsmonitor=x\\n' >> lib/.git/config; {gone}"
        assert sandbox.exec(again, timeout=60).exit_code == 0


def test_what_was_undone_is_shown_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "own"))
    program = [sys.executable, "-m", "sandbox.cli.main"]
    plant = ["run", "--", "sh", "-c", "git init -q lib; git -C lib config core.fsmonitor x"]
    done = subprocess.run([*program, *plant], cwd=person.project, capture_output=True, text=True, check=True)
    config = "lib/.git/config"
    assert f"{config}.from-sandbox" in done.stderr
    told = subprocess.run([*program, "audit"], cwd=person.project, capture_output=True, text=True, check=True).stdout
    assert any("blocked" in line and f"undo {person.project}/{config}" in line for line in told.splitlines()), told


def test_what_was_undone_is_shown_however_the_run_ends_and_to_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    program = [sys.executable, "-m", "sandbox.cli.main"]
    plant = "git init -q {0}; git -C {0} config core.fsmonitor x"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*program, *words], cwd=person.project, capture_output=True, text=True, check=False)

    document = json.loads(run("run", "--json", "--", "sh", "-c", plant.format("one")).stdout)
    config = f"{person.project}/one/.git/config"
    assert document["undone"] == [{"path": config, "saved": f"{config}.from-sandbox"}]
    detached = run("run", "--detach", "--", "sh", "-c", plant.format("two")).stdout.strip()
    until(lambda: "two/.git/config.from-sandbox" in run("logs", detached).stdout)
    (tmp_path / "own" / "config.yaml").write_text("limits: {lifetime: 1s}")
    ended = run("run", "--", "sh", "-c", f"{plant.format('three')}; sleep 1000")
    assert ended.returncode == 125 and "three/.git/config.from-sandbox" in ended.stderr


@pytest.mark.parametrize("then", ["run", "prune"])
def test_after_a_killed_owner_the_next_one_undoes_it(
    then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "own"))
    plant = "git init -q lib; git -C lib config core.fsmonitor x; echo planted"
    script = f"""
import os, sandbox
from sandbox.guards import watch_later
watch_later.DELAY = 3600  # no process stands by to undo it
s = sandbox.Sandbox({{"filesystem": {{"root": {str(person.project)!r}}}}})
s.exec({plant!r})
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    config = person.project / "lib" / ".git" / "config"
    assert "fsmonitor" in config.read_text()
    words = ["run", "--root", str(person.project), "--", "true"] if then == "run" else ["prune"]
    done = subprocess.run(
        [sys.executable, "-m", "sandbox.cli.main", *words], capture_output=True, text=True, check=True
    )
    assert "fsmonitor" not in config.read_text()
    assert "config.from-sandbox" in done.stderr


# -- git inside, where the repository is not


def test_git_commit_inside_finds_the_persons_name_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "[alias]\n\tst = status\n[include]\n\tpath = work\n[credential]\n\thelper = store\n"
    person = Person(tmp_path, monkeypatch, Way("", "", personal=own))
    (person.home / "work").write_text("[user]\n\temail = p@work.example\n[http]\n\textraHeader = secret\n")
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        assert (
            sandbox.exec("git commit -q --allow-empty -m x && git log -1 --format='%an %ae'").stdout
            == "P p@work.example\n"
        )
        listed = sandbox.exec("git config --list --system").stdout.splitlines()
        of_the_sandbox = ("gitconfig.project", "core.checkstat=minimal")  # the latter where owners differ inside
        of_theirs = [line for line in listed if not any(one in line for one in of_the_sandbox)]
        assert of_theirs == ["user.name=P", "user.email=p@work.example"]


@pytest.mark.parametrize("place", ["tree", "project/part"])
def test_git_works_in_a_further_work_tree_and_in_a_part_of_a_repository(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    person.does("mkdir part; echo a > part/f; git add part; git commit -qm part; git worktree add -q ../tree")
    with Sandbox({"filesystem": {"root": str(tmp_path / place)}}) as sandbox:
        sandbox.exec("echo more >> f; echo more >> file")
        assert "+more" in sandbox.exec("git diff .").stdout
        assert "part" in sandbox.exec("git log --format=%s").stdout
        repository = f"{person.project}/.git"
        assert sandbox.exec(f"echo x >> {repository}/config || touch {repository}/hooks/x").exit_code != 0


def test_the_repository_of_a_work_tree_stays_as_it_is_whatever_happens_in_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    person.does("git worktree add -q ../tree; git worktree add -q ../other")
    with Sandbox({"filesystem": {"root": str(tmp_path / "tree")}}) as sandbox:
        sandbox.exec("echo more >> file")
        person.does("cd ../other && git commit -q --allow-empty -m meanwhile && cd ../tree && git status")
    assert sandbox._undone == []
    for tree in ("tree", "other"):
        subprocess.run(["git", "status"], cwd=tmp_path / tree, capture_output=True, check=True)


def test_a_git_file_shows_no_repository_that_does_not_know_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(tmp_path, monkeypatch, Way("", ""))
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {person.project}/.git\n")
    with Sandbox({"filesystem": {"root": str(other)}}) as sandbox:
        assert sandbox.exec(f"ls {person.project}/.git").exit_code != 0
