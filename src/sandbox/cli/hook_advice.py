"""Which files a shell line would use, by its text (`sandbox hook … --judge-only`). Only advice: the shell may do more
than the text shows, so what cannot be read is left to the user, and nothing is ever approved.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.cli.hook_files import FileJudge
    from sandbox.policy.decision import Decision
    from sandbox.policy.shell import SimpleCommand

_SPEAK = ("echo", "printf", ":", "true", "false", "exit", "export", "unset")  # their words are not files
_SEARCH = ("grep", "egrep", "fgrep", "rg", "ag", "sed", "awk", "jq")  # the first of their words is a pattern
_CHANGE_ALL = ("tee", "touch", "rm", "mkdir", "rmdir", "chmod", "chown", "truncate", "shred", "unlink")
_CHANGE_LAST = ("cp", "mv", "ln", "install", "rsync")


def judge(line: str, files: FileJudge) -> tuple[Decision | None, str | None]:
    """The decision that refuses the line, and what could not be read. Both None: nothing was found."""
    from sandbox.policy.shell import Unclear, commands

    unread: str | None = None
    try:
        found = commands(line)
    except Unclear as problem:
        return _mentioned(line, files), str(problem)
    for command in found:
        for path, operation in _accesses(command, files):
            decision = files.path(path, operation)
            if not decision:
                return decision, None
        unread = unread or _unread(command)
        inner, problem_inside = _inside(command, files)
        if inner is not None:
            return inner, None
        unread = unread or problem_inside
    return None, unread


def _inside(command: SimpleCommand, files: FileJudge) -> tuple[Decision | None, str | None]:
    """Checks words that are code themselves: a script for a shell, a program for an interpreter."""
    for word in command.words[1:]:
        if word is not None and any(sign in word for sign in " \t\n(;"):
            decision = _mentioned(word, files)
            if decision is not None and command.words[0] not in (*_SPEAK, "git"):
                return decision, None
    if command.words and command.words[0] is not None:
        from sandbox.policy.shell import Unclear
        from sandbox.policy.wrappers import programs

        try:
            for _words in programs(command):
                pass
        except Unclear as problem:
            return None, str(problem)
    return None, None


def _mentioned(text: str, files: FileJudge) -> Decision | None:
    """A blocked file that a text names, whatever the text does with it."""
    from sandbox.policy.wrappers import tokens

    for token in tokens(text):
        if token not in (".", "/") and _exists(token, files):
            decision = files.path(token, "read")
            if decision.rule == "sensitive-file-pattern":
                return decision
    return None


def _unread(command: SimpleCommand) -> str | None:
    if any(word is None for word in (*command.reads, *command.writes)):
        return "a computed file name"
    if command.words and command.words[0] in _SPEAK:
        return None
    if any(word is None and _known(raw) is None for word, raw in zip(command.words, command.raw, strict=True)):
        return "a computed word"
    return "its input is in the text" if command.fed and command.words and _runs_input(command) else None


def _runs_input(command: SimpleCommand) -> bool:
    from sandbox.policy.wrappers import DATA

    return (command.words[0] or "").rsplit("/", 1)[-1] not in DATA


def _accesses(command: SimpleCommand, files: FileJudge) -> Iterator[tuple[str, str]]:
    yield from ((path, "write") for path in command.writes if path)
    yield from ((path, "read") for path in command.reads if path)
    if not command.words:
        return
    name = (command.words[0] or "").rsplit("/", 1)[-1]
    if name in _SPEAK:
        return
    words = list(_spelled(command, files))
    plain = [word for word in words if not word.startswith("-")]
    if name in _SEARCH and plain and not any(word in ("-e", "-f") for word in words):
        words.remove(plain.pop(0))
    for word in words:
        for piece in _pieces(word):
            named = piece.startswith(("/", "~/", "../")) and "://" not in word and not piece.startswith("/dev/")
            if named or _exists(piece, files):
                yield piece, "read"
    changed = plain if name in _CHANGE_ALL or (name == "sed" and "-i" in words) else plain[-1:]
    if name in _CHANGE_ALL or name in _CHANGE_LAST or (name == "sed" and "-i" in words):
        yield from ((word, "write") for word in changed)


def _spelled(command: SimpleCommand, files: FileJudge) -> Iterator[str]:
    """The words after the program's name, with patterns replaced by the files they match."""
    import glob

    for word, raw in zip(command.words[1:], command.raw[1:], strict=True):
        known = word if word is not None else _known(raw)
        if known is None:
            continue
        if word is None and any(sign in known for sign in "*?["):
            yield from glob.glob(known, root_dir=files.cwd, include_hidden=True)[:1000]
        else:
            yield known


def _known(raw: str) -> str | None:
    """The value of a word that is not literal, if it is known: `$PWD`, `$HOME`, and patterns. None for any other."""
    text = raw.replace('"', "").replace("${PWD}", "$PWD").replace("${HOME}", "$HOME")
    text = text.replace("$PWD", ".").replace("$HOME", os.path.expanduser("~"))
    return None if any(sign in text for sign in "$`{\\'") else text


def _pieces(word: str) -> Iterator[str]:
    """The paths that may be in a word: `x`, `--file=x`, `@x`, `-Tx`, `name=@x`, `x:/y`."""
    yield word
    if word.startswith("-") and len(word) > 2:
        yield word[2:]
    for sign in ("=", "@", ":"):
        for piece in word.split(sign)[1:]:
            if piece:
                yield piece.lstrip("@")
    if ":" in word:
        yield word.split(":", 1)[0]


def _exists(path: str, files: FileJudge) -> bool:
    return bool(path) and len(path) < 4096 and "\0" not in path and os.path.lexists(files.absolute(path))
