"""Commands behind other commands: refused exactly when they would be by themselves."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.config.model import Tools
from sandbox.policy.tools import ToolGuard
from tests import soaking

# What stands before a command and runs it, the words of it as they are.
BEFORE = [
    "sudo", "sudo -n", "sudo -u root", "sudo -uroot", "sudo --user=root --", "sudo -E A=b", "doas -u root", "env",
    "env -i",
    "env -u X", "env A=b C=d", "env --unset=X", "command", "command -p", "builtin", "exec", "exec -a name", "nohup",
    "nice",
    "nice -n 5", "nice -5", "nice --adjustment=5", "ionice -c 3", "time", "time -p", "timeout 5",
    "timeout -k 1 -s KILL 5",
    "timeout --signal=KILL 5", "setsid", "setsid -w", "stdbuf -oL", "stdbuf -o L -e0", "unbuffer", "xargs",
    "xargs -0 -n 1",
    "xargs -I X", "chrt 5", "taskset 0x1", "busybox", "/usr/bin/env", "/bin/nice -n1", "\\sudo", "'en'v",
    "find . -exec",
    "find . -name x -execdir", "strace -f", "gdb --args", "unshare -r",
]  # fmt: skip
SHELLS = ["sh -c", "bash -c", "bash -lc", "bash --norc -c", "bash -e -c", "dash -ec", "zsh -c", "ksh -c",
    "bash -o pipefail -c",
          "/bin/sh -c", "eval", "busybox sh -c"]  # fmt: skip
LINES = [
    "{}",
    "ls; {}",
    "true && {}",
    "ls | {}",
    "( {} )",
    "if true; then {}; fi",
    "A=b {}",
    "ls $( {} )",
    "! {}",
    "{} &",
]
QUOTES = [shlex.quote, lambda text: '"' + "".join(f"\\{s}" if s in '\\"$`' else s for s in text) + '"']
COMMANDS = ["rm x", "rm", "/bin/rm -rf x", "ls", "ls rm", "echo rm x", "git status", "cat rm"]


def guard(*disallowed: str) -> ToolGuard:
    return ToolGuard(Tools(), root="/p", disallowed=disallowed)


def refused(line: str, *disallowed: str) -> bool:
    return not guard(*(disallowed or ("Bash(rm:*)",))).check("Bash", {"command": line})


@st.composite
def wrapped(draw: st.DrawFn) -> tuple[str, str]:
    """A bare command, and the same behind wrappers and shells."""
    bare = line = draw(st.sampled_from(COMMANDS))
    for _ in range(draw(st.integers(1, 4))):
        way = draw(st.sampled_from(["before", "shell", "line"]))
        if way == "before" and _simple(line):
            line = f"{draw(st.sampled_from(BEFORE))} {line}"
            line += " \\;" if "find" in line.split(" -exec")[0].split()[0] else ""
        elif way == "shell":
            line = f"{draw(st.sampled_from(SHELLS))} {draw(st.sampled_from(QUOTES))(line)}"
        elif way == "line":
            # A variable is set for one command; before several, or a parenthesis, it is no shell at all.
            around = [one for one in LINES if one != "A=b {}" or _simple(line)]
            line = draw(st.sampled_from(around)).format(line)
    return bare, line


def _simple(line: str) -> bool:
    """Whether a word may be put before it: it is one command, not a line of several."""
    return (
        not any(sign in shlex.split(line) for sign in ("&&", "|", "(", "!", "&", "if", "A=b"))
        and ";" not in (line.replace("\\;", "").replace("';'", "").split("'")[0].split('"')[0])
    )


def _holds(case: tuple[str, str]) -> None:
    bare, line = case
    if refused(bare):
        assert refused(line), line
    elif not any(unknown in line for unknown in ("strace", "gdb", "unshare", "find")) and not (
        "xargs" in line and "eval" in line
    ):
        # A program that is not known may run any of its words, find puts in what it found, and xargs adds words to what
        # eval reads.
        assert not refused(line), line


@given(wrapped())
def test_a_wrapped_command_is_refused_exactly_when_the_bare_one_is(case: tuple[str, str]) -> None:
    _holds(case)


@pytest.mark.soak
def test_nor_is_there_another_one_in_a_long_search() -> None:
    for _ in soaking.rounds():
        given(wrapped())(_holds)()


@pytest.mark.parametrize(
    "line",
    [
        "sudo bash -c 'rm x'", "env sh -c 'rm x'", "timeout 5 sh -c 'rm x'", "xargs sh -c 'rm x'",
        "nice nohup bash -c 'rm x'",
        "find . -exec rm {} +", "find . -exec sh -c 'rm x' \\;", "echo rm x | bash", "bash <<< 'rm x'",
        "bash <<E\nrm x\nE",
        "bash -s < x", "sh", "$X x", "sudo $X x", "sudo --unknown-option rm x", "env -S 'rm x'", "bash -c \"$X\"",
        "/bin/r? x",
        "x=rm; $x y", "alias r=rm; r x", "trap 'rm x' EXIT", "script -c 'rm x'", "watch -n 1 'rm x'", "su -c 'rm x'",
        "ssh localhost rm x", "parallel rm ::: x", "python3 -c 'import os; os.system(\"rm x\")'",
        "awk 'BEGIN{system(\"rm x\")}'",
        "git -c alias.x='!rm x' x", "git submodule foreach rm x", "git bisect run rm x", "make SHELL=rm",
        "npm exec -- rm x",
        "uv run rm x", "tar --to-command=rm -xf x", "find . -exec {} \\;", "eval $X", "bash -c",
        "GIT_PAGER='rm x' git log", "GIT_PAGER='r\\m x' git log", "GIT_PAGER='\"r\"m x' git log", "PAGER=rm man ls",
        "env GIT_PAGER='r\"\"m x' git log", "ssh localhost 'r\\m x'",
    ],
)  # fmt: skip
def test_a_disallowed_command_is_found_or_the_line_is_refused(line: str) -> None:
    assert refused(line)


@pytest.mark.parametrize(
    "line",
    ["ls -la | grep rm", "git commit -m 'rm x'", "echo rm", "sudo -u rm ls", "timeout 5 ls rm", "bash -c 'echo rm'",
     "find . -name rm", "command -v rm", "env rm=1 ls", "bash build.sh", "make test", "npm test", "python3 x.py"],
)  # fmt: skip
def test_a_name_that_is_only_a_word_is_not_refused(line: str) -> None:
    assert not refused(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git push", True), ("git -C . push", True), ("git --git-dir=x push", True), ("git -c a=b -p push", True),
        ("git $X", True), ("git $X origin", True), ("sudo git -C . push origin", True), ("xargs git", True),
        ("git commit -m push", False), ("git log", False), ("git -C . log", False), ("grep push x", False),
    ],
)  # fmt: skip
def test_options_before_a_subcommand_do_not_hide_it(line: str, expected: bool) -> None:
    assert refused(line, "Bash(git push:*)") is expected


def test_a_line_that_cannot_be_read_is_refused_only_where_a_command_is_disallowed() -> None:
    assert refused("case x in x) ls;; esac")
    assert not refused("case x in x) ls;; esac", "Write(docs/**)")
