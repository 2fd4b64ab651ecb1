"""Which programs a command would run in turn, as far as its text says: `sudo rm`, `env -i sh -c 'rm x'`, `xargs rm`.

Closed by default. A program is one of
- a wrapper or a shell with known options: what it runs is read exactly;
- a program that is known not to run any of its words (`DATA`): the words are ignored;
- anything else: it may run any of its words, so each of them counts as the beginning of a command.
What cannot be determined raises `Unclear`. The tests check, over wrappers, shells and quoting, that a command is
refused exactly if it would be refused without its wrappers.
"""

from __future__ import annotations

from sandbox.errors import Message
from sandbox.policy.shell import SimpleCommand, Unclear, commands, evaluates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Argv = list[str | None]

_DEEPEST = 20
_QUOTES = dict.fromkeys(map(ord, "'\"\\"))
_MOST_TOKENS = 1000

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash"))


class _Options:
    """What a wrapper takes before its command: letters and long names of options, and words that are not options."""

    __slots__ = ("flags", "values", "long_flags", "long_values", "words", "assigns", "digits")

    def __init__(
        self,
        flags: str = "",
        values: str = "",
        long_flags: str = "",
        long_values: str = "",
        *,
        words: int = 0,
        assigns: bool = False,
        digits: bool = False,
    ) -> None:
        self.flags, self.values = flags, values
        self.long_flags, self.long_values = long_flags.split(), long_values.split()
        self.words = words
        self.assigns = assigns  # NAME=value words come before the command
        self.digits = digits  # `nice -5`


# fmt: off
WRAPPERS = {
    "sudo": _Options("AbEHnPSksiK", "CDghpRrtTUu", "askpass background preserve-env set-home non-interactive stdin "
                     "login shell", "close-from chdir group host prompt chroot role type user other-user preserve-env",
                     assigns=True),
    "doas": _Options("Lns", "Cu"),
    "env": _Options("i0v", "uC", "ignore-environment null debug",
                    "unset chdir block-signal default-signal ignore-signal", assigns=True),
    "command": _Options("p"),
    "builtin": _Options(),
    "exec": _Options("cl", "a"),
    "nohup": _Options(),
    "nice": _Options("", "n", "", "adjustment", digits=True),
    "ionice": _Options("t", "cn", "ignore", "class classdata"),
    "time": _Options("pvaq", "fo", "portability verbose append quiet", "format output"),
    "timeout": _Options("v", "ks", "foreground preserve-status verbose", "kill-after signal", words=1),
    "setsid": _Options("cfw", "", "ctty fork wait"),
    "stdbuf": _Options("", "ioe", "", "input output error"),
    "unbuffer": _Options("p"),
    "chrt": _Options("abfiorRv", "TPD", words=1),
    "taskset": _Options("ac", words=1),
    "busybox": _Options(),
    "xargs": _Options("0rtpxo", "adEILnPs", "null no-run-if-empty verbose interactive exit open-tty",
                      "arg-file delimiter max-args max-procs max-lines replace max-chars eof process-slot-var"),
}

# Programs that run none of their words: a disallowed name among the words is only a word.
DATA = frozenset((
    ":", "[", "basename", "bg", "cat", "cd", "chgrp", "chmod", "chown", "cksum", "clear", "cmp", "comm", "cp", "cut",
    "date", "df", "diff", "dirname", "du", "echo", "egrep", "exit", "false", "fgrep", "file", "fold",
    "grep", "groups", "head", "hostname", "id", "jobs", "jq", "kill", "ln", "ls", "md5sum", "mkdir", "mktemp", "mv",
    "nl", "od", "paste", "popd", "printenv", "printf", "pushd", "pwd", "read", "readlink", "realpath", "return",
    "rev", "rm", "rmdir", "seq", "sha1sum", "sha256sum", "shift", "sleep", "stat", "tail", "tac", "tee",
    "test", "touch", "tr", "tree", "true", "type", "umask", "uname", "uniq", "unset", "wait", "wc", "which",
    "whoami", "yes",
))
# Those of them that a shell runs itself, and that take names of variables: it evaluates `x[$(rm y)]`.
_NAMING = frozenset(("[", "printf", "read", "test", "unset", "wait"))
# Commands of the shell itself that keep their words or their input, which it then may evaluate once more.
_KEEPING = frozenset((
    "alias", "bind", "compgen", "complete", "declare", "export", "fc", "getopts", "let", "local", "mapfile",
    "read", "readarray", "readonly", "set", "trap", "typeset",
))
# git commands that run none of their words. Options before them, and all other git commands, may.
_GIT_DATA = frozenset((
    "add", "blame", "branch", "cat-file", "checkout", "cherry-pick", "clean", "commit", "describe", "diff", "fetch",
    "init", "log", "ls-files", "merge", "mv", "pull", "push", "reset", "restore", "rev-list", "rev-parse", "revert",
    "rm", "show", "stash", "status", "switch", "tag",
))
# fmt: on


def programs(command: SimpleCommand) -> Iterator[Argv]:
    """The command itself and every command it runs or may run in turn, as words. Raises Unclear."""
    yield from _command(command, 0)


def _command(command: SimpleCommand, depth: int) -> Iterator[Argv]:
    yield from _programs(command.words, command, depth)
    name = (command.words[0] or "").rsplit("/", 1)[-1] if command.words else ""
    keeps = name in _KEEPING or (name == "printf" and command.spelled[1:2] == ["-v"])
    kept = command.values + (command.spelled[1:] if keeps else [])
    fed = command.fed if name not in DATA or keeps else []
    if fed and not command.feeds_literally:  # `BASH_ENV=/dev/stdin bash -c : <<<$a'm x'`
        raise Unclear("a script that is not literal")
    shells = keeps or name in ("", "exec")  # the shell itself has the input, in a variable or a descriptor
    if any(map(evaluates, kept + fed if shells else kept)):
        raise Unclear("a complicated expansion")
    yield from _anything([*kept, *fed])


def _programs(words: Argv, command: SimpleCommand, depth: int) -> Iterator[Argv]:
    if depth > _DEEPEST:
        raise Unclear("nested too deeply")
    if not words:
        return
    if words[0] is None:
        raise Unclear("the program's name is not literal")
    yield words
    name = words[0].rsplit("/", 1)[-1]
    rest = words[1:]
    if name in SHELLS:
        yield from _shell(name, rest, depth)
    elif name == "eval":
        yield from _script(" ".join(_text(word) for word in rest), depth)
    elif name == "command" and rest[:1] and (rest[0] or "") in ("-v", "-V", "-pv", "-pV"):
        return  # only looks it up
    elif name == "env" and any(word is not None and word.startswith(("-S", "--split-string")) for word in rest):
        raise Unclear("env -S")
    elif name in WRAPPERS:
        inner = _after_options(name, rest, WRAPPERS[name])
        if WRAPPERS[name].assigns:
            yield from _anything([(word or "").partition("=")[2] for word in rest[: len(rest) - len(inner)]])
        yield from _programs([*inner, None] if name == "xargs" and inner else inner, command, depth + 1)
    elif name == "find":
        yield from _find(rest, command, depth)
    elif name in _NAMING and _evaluates(name, rest):
        raise Unclear("a complicated expansion")
    elif name in DATA or (name == "git" and rest[:1] and rest[0] in _GIT_DATA and not _git_runs(rest)):
        return
    else:
        yield from _anything(rest)
        if None in rest:
            yield from _anything(
                [part for word, part in zip(command.words, command.spelled, strict=True) if word is None]
            )


def _shell(name: str, words: Argv, depth: int) -> Iterator[Argv]:
    """A shell: its `-c` script is read; a script file counts as a program; a script from its input cannot be read."""
    at, script = 0, False
    while at < len(words):
        word = words[at]
        if word is None:
            raise Unclear(Message("{name} with options that are not literal", name=name))
        if word in ("-", "--"):
            at += 1
            break
        if word[:1] not in "-+" or not word:
            break
        at += 1
        if word in ("--norc", "--noprofile", "--posix", "--login", "--verbose", "--restricted"):
            continue
        if word.startswith("--") or not word[1:].isalpha() or word[0] == "+":
            raise Unclear(Message("{name} {word}", name=name, word=word))
        script = script or "c" in word
        if "s" in word[1:]:
            raise Unclear(Message("{name} runs commands from its input", name=name))
        values = sum(letter in "oO" for letter in word[1:])  # `-oc pipefail script`
        if None in words[at : at + values]:
            raise Unclear(Message("{name} with options that are not literal", name=name))
        at += values
    if at >= len(words):
        raise Unclear(Message("{name} runs commands from its input", name=name))
    if script:
        yield from _script(_text(words[at]), depth)
    else:
        yield [_text(words[at]), *words[at + 1 :]]


def _script(text: str, depth: int) -> Iterator[Argv]:
    for inner in commands(text):
        yield from _command(inner, depth + 1)


def _after_options(name: str, words: Argv, options: _Options) -> Argv:
    """The words of the command that a wrapper runs. Raises Unclear for an unknown option."""
    at = 0
    while at < len(words):
        word = words[at]
        if word is None:
            raise Unclear(Message("{name} with words that are not literal", name=name))
        if word == "--":
            at += 1
            break
        if not word.startswith("-") or word == "-":
            break
        at += _option(name, word, options)
    at += options.words
    while options.assigns and at < len(words) and "=" in (words[at] or ""):
        at += 1
    if None in words[:at]:
        raise Unclear(Message("{name} with words that are not literal", name=name))
    return words[at:]


def _option(name: str, word: str, options: _Options) -> int:
    """The number of words that this option takes, itself included. Raises Unclear for an unknown one."""
    if word.startswith("--"):
        long, equals, _ = word[2:].partition("=")
        if long in options.long_flags and not equals:
            return 1
        if long in options.long_values:
            return 1 if equals else 2
        raise Unclear(Message("{name} {word}", name=name, word=word))
    if options.digits and word[1:].lstrip("-").isdigit():
        return 1
    for place, letter in enumerate(word[1:], 2):
        if letter in options.values:
            return 1 if word[place:] else 2
        if letter not in options.flags:
            raise Unclear(Message("{name} {word}", name=name, word=word))
    return 1


def _find(words: Argv, command: SimpleCommand, depth: int) -> Iterator[Argv]:
    """`find … -exec command ;`: each of them."""
    at = 0
    while at < len(words):
        if words[at] in ("-exec", "-execdir", "-ok", "-okdir"):
            end = at + 1
            while end < len(words) and words[end] not in (";", "+"):
                end += 1
            # find replaces `{}` with a file name, even in the name of the command.
            inner = [None if word is None or "{}" in word else word for word in words[at + 1 : end]]
            yield from _programs(inner, command, depth + 1)
            at = end
        at += 1


def _evaluates(name: str, words: Argv) -> bool:
    """Whether a word may be the name of a variable with a subscript that runs something."""
    names = name in ("read", "unset") or any(word is not None and word.startswith(("-v", "-p")) for word in words)
    if names and name != "export" and None in words:
        return True
    return any(word is not None and "[" in word and ("$" in word or "`" in word) for word in words)


def _git_runs(words: Argv) -> bool:
    """Whether an option of a git command names a program (`--exec`, `--upload-pack`, `--receive-pack`)."""
    return any(word is not None and word.startswith(("--exec", "--upload-pack", "--receive-pack")) for word in words)


def _anything(words: Argv) -> Iterator[Argv]:
    """An unknown program: it may run any of its words, or something in one of them."""
    for at, word in enumerate(words):
        if word is None:
            continue
        yield words[at:]
        # A shell that reads it puts quoted parts together again: `r\m`, `"r"m`.
        for text in dict.fromkeys((word, word.translate(_QUOTES))):
            pieces = tokens(text)
            if pieces != [word]:
                for start in range(len(pieces)):
                    yield [*pieces[start:]]
        if word[:1] == "-" and len(word) > 2:  # an option and its value in one word: `-Crm`
            yield [*tokens(word[2:])]


def tokens(text: str) -> list[str]:
    """The names in a text of any language: what is between white space, quotes, brackets and operators."""
    for sign in "\t\r\n'\"`()[]{}<>|&;,=!$@\\":
        text = text.replace(sign, " ")
    found = text.split(maxsplit=_MOST_TOKENS)
    if len(found) > _MOST_TOKENS:
        raise Unclear("a script that is too long")
    return found


def _text(word: str | None) -> str:
    if word is None:
        raise Unclear("a script that is not literal")
    return word
