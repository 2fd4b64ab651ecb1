"""Where a sandbox's commits go: one branch of the person's repository, checked before the sandbox starts and again
when the commits arrive. The person names it; a tenant names nothing."""

from __future__ import annotations

import json
import os

from sandbox.branches.git import Git
from sandbox.config.atomic_write import write_whole
from sandbox.config.paths import is_beneath
from sandbox.errors import SandboxError
from sandbox.guards.git_directories import is_repository, read_config
from sandbox.guards.git_view import outside_repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

FILE = "branch.json"


class Target:
    """A branch that a sandbox works on. `start`: the commit that it begins with."""

    def __init__(self, name: str, root: str, directory: str, common: str, start: str, existed: bool) -> None:
        self.name = name
        self.root = root  # the work tree
        self.directory = directory  # what git knows of this work tree
        self.common = common  # the repository
        self.start = start
        self.existed = existed
        self.git = Git(directory, common)

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"

    @property
    def inside_project(self) -> bool:
        """Whether the repository's directory is in the project, and so beneath its overlay."""
        return is_beneath(self.common, self.root)

    @classmethod
    def find(cls, root: str, name: str) -> Self:
        """The branch `name` of the repository whose work tree is `root`. Raises SandboxError, naming what is in the
        way."""
        directory, common = repository_of(root)
        found = cls(name, root, directory, common, "", False)
        found._check_name()
        found._check_repository()
        tip = found.tip()
        head = tip or found.git.ask("rev-parse", "--verify", "-q", "HEAD^{commit}", ok=(1, 128))
        if head is None:
            raise SandboxError("{root} has no commit yet: a branch needs one to begin with", root=root)
        found.start, found.existed = head, tip is not None
        found.check()
        return found

    @classmethod
    def load(cls, state: str) -> Self | None:
        """The target of the overlay in `state`; None when it has none."""
        try:
            with open(os.path.join(state, FILE), encoding="utf-8") as file:
                kept = json.load(file)
        except FileNotFoundError:
            return None
        root, directory, common = (os.fsdecode(bytes.fromhex(kept[key])) for key in ("root", "directory", "common"))
        return cls(kept["name"], root, directory, common, kept["start"], kept["existed"])

    def save(self, state: str) -> None:
        """Saves it beside an overlay, so that the commits can be brought over after a crash."""
        places = {key: os.fsencode(getattr(self, key)).hex() for key in ("root", "directory", "common")}
        write_whole(
            os.path.join(state, FILE),
            json.dumps({"name": self.name, "start": self.start, "existed": self.existed, **places}),
        )

    def tip(self) -> str | None:
        """The branch's commit now; None while there is no such branch."""
        return self.git.ask("rev-parse", "--verify", "-q", f"{self.ref}^{{commit}}", ok=(1, 128))

    def current(self) -> str | None:
        """The name of the branch that the person's work tree is on."""
        return self.git.ask("symbolic-ref", "-q", "--short", "HEAD", ok=(1, 128))

    def check(self) -> None:
        """Raises SandboxError for a branch that somebody works on: moving it would make their files look changed."""
        other = self.git.ask("symbolic-ref", "-q", self.ref, ok=(1, 128))
        if other is not None:  # setting it would move the other branch, which may be checked out
            other = other.removeprefix("refs/heads/")
            raise SandboxError("{name} is another name of {other}; name that branch", name=self.name, other=other)
        listed = self.git.ask("worktree", "list", "--porcelain") or ""
        place = ""
        for line in listed.split("\n"):
            if line.startswith("worktree "):
                place = line[9:]
            elif line == f"branch {self.ref}":
                raise SandboxError(
                    "the branch {name} is checked out in {place}; name another one", name=self.name, place=place
                )

    def check_protected(self) -> None:
        """Raises SandboxError for the branch that a remote has as its default."""
        symbolic = self.git.ask("for-each-ref", "--format=%(symref)", "refs/remotes") or ""
        for line in symbolic.split():
            if line.split("/", 3)[3:] == [self.name]:
                raise SandboxError(
                    "{name} is the default branch of a remote; name another one, or use --force", name=self.name
                )

    def _check_name(self) -> None:
        name = self.name
        good = not name.startswith(("-", "refs/")) and name not in ("HEAD", "@") and "\0" not in name
        if not good or self.git.ask("check-ref-format", self.ref, ok=(1,)) is None:
            raise SandboxError("{name!r} is not a name for a branch", name=name)

    def _check_repository(self) -> None:
        entries = dict(read_config(f"{self.common}/config") or ())
        if entries.get("core.bare") == "true" and self.directory == self.common:
            raise SandboxError("{place} is a bare repository: it has no work tree", place=self.common)
        if "extensions.partialclone" in entries:
            raise SandboxError("{root} is a partial clone: git would have to fetch what is missing", root=self.root)
        if os.path.exists(f"{self.common}/objects/info/alternates"):
            raise SandboxError(
                "{root} borrows objects from another repository (`git clone --shared`), which is not visible inside; "
                "`git repack -a -d` and then removing .git/objects/info/alternates makes it whole",
                root=self.root,
            )


def repository_of(root: str) -> tuple[str, str]:
    """The directories of the repository whose work tree is `root`: of this work tree, and of the whole.

    Raises SandboxError when there is none that --branch can work with, and says why.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    if is_beneath(home, root):
        raise SandboxError("{root} holds your home directory; --branch is for a project's repository", root=root)
    place = f"{root}/.git"
    if os.path.isdir(place) and not os.path.islink(place):
        if not is_repository(place) or os.path.lexists(f"{place}/commondir"):
            raise SandboxError("{place} is not a repository that --branch can work with", place=place)
        return place, place
    if not os.path.isfile(place) or os.path.islink(place):
        top = top_of(root)
        if top is not None and top != root:
            raise SandboxError("{root} is a directory in the repository {top}: use that as root", root=root, top=top)
        raise SandboxError("{root} is not the work tree of a git repository; --branch needs one", root=root)
    shown = outside_repository(root, home)
    if len(shown) != 1:
        raise SandboxError(
            "--branch cannot use the repository that {place} names: it is inside the project, does not name this work "
            "tree itself (`git init --separate-git-dir`), or has credentials in its configuration",
            place=place,
        )
    with open(place, encoding="utf-8", errors="surrogateescape") as file:
        said = file.read(8192).removeprefix("gitdir:").strip()
    return os.path.realpath(os.path.join(root, said)), shown[0]


def top_of(directory: str) -> str | None:
    """The nearest directory at or above that has a `.git`."""
    directory = os.path.realpath(directory)
    while not os.path.lexists(f"{directory}/.git"):
        if directory == "/":
            return None
        directory = os.path.dirname(directory)
    return directory
