"""Command lines that bash would only split into words: they can run without it, as in make, which saves starting it.

This is done only where nobody inside could tell the difference: for one program followed by plain words, without
variables that change how bash reads a line. Everything else is left to bash.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WORD = rb"[A-Za-z0-9_@%+:,./=-]+"
_PLAIN = re.compile(rb"[A-Za-z0-9_./+-]+(?: +" + _WORD + rb")*")
#: `compgen -b -k` of bash 5.3, without `true` and `false`, which behave the same as programs.
_BUILTINS = frozenset(
    b"""
    if then else elif fi case esac for select while until do done in function time coproc . : [ alias bg bind
    break builtin caller cd command compgen complete compopt continue declare dirs disown echo enable eval exec
    exit export fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd pwd read
    readarray readonly return set shift shopt source suspend test times trap type typeset ulimit umask unalias
    unset wait
    """.split()
)
_CHANGING = ("BASH_", "BASHOPTS", "SHELLOPTS", "POSIXLY_CORRECT")


def without_shell(argv: Sequence[bytes], environment: Mapping[str, str], directory: str) -> list[bytes] | None:
    """The program and arguments that `bash -c line` would finally run; None where only bash itself can tell."""
    if len(argv) != 3 or argv[0] not in (b"/bin/bash", b"/usr/bin/bash") or argv[1] != b"-c":
        return None
    line = argv[2]
    if _PLAIN.fullmatch(line) is None:
        return None
    words = line.split()
    if words[0] in _BUILTINS or words[0].startswith(b"-") or not environment.get("PATH"):
        return None
    if any(name.startswith(_CHANGING) for name in environment):
        return None
    level = environment.get("SHLVL", "0")
    if environment.get("PWD", directory) != directory or not (level.isascii() and level.isdigit() and len(level) < 3):
        return None  # bash would correct them
    return words


def with_defaults(pairs: Sequence[bytes], directory: bytes) -> list[bytes]:
    """Variables as bash would pass them: it adds the directory, a level and the program's path (the guest sets `_`)."""
    names = {pair.partition(b"=")[0] for pair in pairs}
    added = {b"PWD": directory, b"SHLVL": b"0", b"_": b""}
    return [*pairs, *(b"%s=%s" % (name, value) for name, value in added.items() if name not in names)]
