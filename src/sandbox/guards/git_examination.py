"""Follows what the host's git would read and run from a repository: settings, included files, hooks, programs.

As git does it, but without running git, and every condition (`includeIf`) counts as true.
"""

from __future__ import annotations

import os

from sandbox.guards.git_config import MOST, UnreadableConfig, digest, harmless, parse, split
from sandbox.guards.git_directories import (
    CONFIGS,
    DEEP,
    REBASE_STEPS,
    TrustedGit,
    as_path,
    beneath,
    common_directory,
    content,
    first_line,
    personal_files,
    read_config,
    state_of,
    text_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandbox.guards.git_config import Entry


class Examination:
    """Follows everything that git would read, starting at the repositories, and collects it in `trusted`."""

    def __init__(self, roots: Sequence[str], found: TrustedGit) -> None:
        self.roots = roots
        self.trusted = found
        self._seen: set[str] = set()
        self.personal: list[Entry] = []
        for path in personal_files():
            self.personal += self.configuration(path, 0)

    def repository(self, directory: str) -> None:
        """Adds everything that git reads in one repository."""
        entries = [*self.personal]
        for name in CONFIGS:
            entries += self.configuration(f"{directory}/{name}", 0)
        self.place(f"{directory}/commondir")
        trees = work_trees(directory, entries)
        if common_directory(directory) == directory:
            self.directory(f"{directory}/hooks", trees)
        else:
            self.place(os.path.join(directory, first_line(f"{directory}/commondir")), freeze=False)
        for name, value in entries:
            if value and not harmless((name, value)):
                self.setting(name, value, trees)
        self.trusted.commands.update(dict.fromkeys(commands_in(directory)))

    def git_file(self, path: str) -> None:
        """A `.git` that is a file or a link: it names the repository."""
        self.place(path)
        said = first_line(path)
        if said.startswith("gitdir:"):
            self.place(os.path.join(os.path.dirname(path), said[7:].strip()), freeze=False)

    def configuration(self, path: str, depth: int) -> list[Entry]:
        """The settings of a file and of those that it includes."""
        self.place(path)
        if path in self.trusted.frozen:
            self.trusted.configs[path] = state_of(path)
        entries: list[Entry] = []
        for name, value in read_config(path) or ():
            entries.append((name, value))
            if path in self.trusted.configs and not harmless((name, value)):
                self.trusted.settings[digest((name, value))] = None
            section, _, key = split(name)
            if section in ("include", "includeif") and key == "path" and value and depth < DEEP:
                entries += self.configuration(as_path(value, os.path.dirname(path)), depth + 1)
        return entries

    def setting(self, name: str, value: str, trees: Sequence[str]) -> None:
        """Adds the files of the project that a setting names as programs or as their arguments."""
        section, _, _key = split(name)
        if name == "core.hookspath":
            for tree in trees:
                self.directory(as_path(value, tree), trees)
            return
        if section in ("include", "includeif", "remote", "url", "branch") or name == "core.worktree":
            return
        if section == "alias" and not value.startswith("!"):
            return  # not a program
        for at, word in enumerate(words(value)):
            for tree in trees:
                path = as_path(word, tree)
                if os.path.isfile(path):
                    self.place(path)
                elif "/" in word or (at and "." in word):
                    self.place(path, freeze=False)  # the program, or a script for it, does not exist yet

    def directory(self, path: str, trees: Sequence[str]) -> None:
        """Adds a directory of hooks, and the files that its links and scripts name."""
        self.place(path)
        try:
            names = os.listdir(path)
        except OSError:
            return
        outer = os.path.dirname(path)
        if path.endswith("/_") and beneath(outer, self.roots) and outer not in self.roots:
            self.directory(outer, trees)  # husky: the scripts in `_` run those next to it
        for name in names:
            hook = f"{path}/{name}"
            if name.endswith(".sample"):
                continue
            if os.path.islink(hook):
                self.place(hook)
            for word in words_of(hook):
                for tree in trees:
                    named = as_path(word, tree)
                    if os.path.isfile(named):
                        self.place(named)
                    elif beneath(named, self.roots) and not os.path.lexists(named):
                        self.trusted.hooked[named] = None

    def place(self, path: str, freeze: bool = True) -> None:
        """Adds one path that git looks at: freezes what is there, and notes every link on the way."""
        path = os.path.normpath(path)
        if path in self._seen:
            return
        self._seen.add(path)
        real = path
        for link, target, rest in links_on(path):
            if beneath(link, self.roots):
                self.trusted.links[link] = target
            real = rest
        if not beneath(real, self.roots) or real in self.roots:
            return
        if not os.path.lexists(real):
            self.trusted.absent[real] = None
        elif freeze:
            self.trusted.frozen[real] = None


def links_on(path: str) -> Iterator[tuple[str, str, str]]:
    """The symbolic links on a path: each with its target, and the whole path after following it."""
    if os.path.realpath(path) == path:
        return
    for _ in range(40):
        names = path.split("/")
        for end in range(2, len(names) + 1):
            place = "/".join(names[:end])
            try:
                target = os.readlink(place)
            except OSError:
                continue
            path = os.path.normpath(os.path.join(os.path.dirname(place), target, *names[end:]))
            yield place, target, path
            break
        else:
            return


def words(command: str) -> list[str]:
    """The words of a command that could be files, split roughly as a shell would."""
    for sign in "!\"'()`;|&<>=,{}$\n\t":
        command = command.replace(sign, " ")
    return [word for word in command.split(" ") if word and not word.startswith("-")]


def words_of(script: str) -> list[str]:
    """The words of a hook that could be files."""
    text = (content(script, 1 << 16) or b"").decode("latin-1")
    lines = (line for line in text.split("\n") if not line.lstrip().startswith("#"))
    found = dict.fromkeys(word for line in lines for word in words(line))
    # Only words with a slash or a leading dot: many hooks name `package.json`, which people want to change.
    return [word for word in found if "/" in word or word.startswith(".")][:1000]


def commands_in(repository: str) -> list[str]:
    """The `exec` lines of an unfinished rebase in a repository."""
    lines = (text_of(f"{repository}/{REBASE_STEPS}") or "").split("\n")
    return [line for line in lines if is_command(line)]


def is_command(line: str) -> bool:
    """Whether a line of a rebase's list runs a command."""
    return line.lstrip(" \t").split(" ")[0].split("\t")[0] in ("exec", "x")


def runs_a_path(options: str) -> bool:
    """Whether one of OPTIONS names a strategy `x/y`: git looks for `git-merge-x/y` in the work tree, and runs it."""
    data = content(options, MOST + 1)
    if data is not None and len(data) > MOST:
        return True  # git would read on
    if data is None or not options.endswith("/opts"):
        return b"/" in (data or b"")
    try:
        return any("/" in (value or "") for name, value in parse(data) if name == "options.strategy")
    except UnreadableConfig:
        return True


def work_trees(repository: str, entries: Sequence[Entry]) -> list[str]:
    """The directories in which git runs this repository's programs: its work tree, or itself if it has none."""
    found = [repository]
    if repository.endswith("/.git"):
        found.append(os.path.dirname(repository))
    if said := first_line(f"{repository}/gitdir"):  # of a further work tree: the `.git` file there
        found.append(os.path.dirname(os.path.join(repository, said)))
    found += [as_path(value, repository) for name, value in entries if name == "core.worktree" and value]
    return [os.path.normpath(one) for one in found]
