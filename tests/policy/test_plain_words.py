"""Which command lines need no bash."""

from __future__ import annotations

import pytest

from sandbox.policy.plain_words import without_shell

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "SHLVL": "1", "HOME": "/root"}


def words(line: str, shell: str = "/bin/bash", **more: str) -> list[bytes] | None:
    return without_shell([shell.encode(), b"-c", line.encode()], {**ENVIRONMENT, **more}, "/here")


@pytest.mark.parametrize("line", ["true", "npm test", "git  log --oneline", "./build.sh a=b", "/bin/ls -l /tmp"])
def test_a_program_with_plain_words_runs_without_bash(line: str) -> None:
    assert words(line) == [word.encode() for word in line.split()]


@pytest.mark.parametrize(
    "line",
    [
        "", " ls", "ls ", "ls;id", "ls & id", "a=b ls", "echo hi", "cd /", "[ a ]", "if x", "! true", "ls *",
        "ls $HOME", "ls ~", "ls 'a b'", "ls\nid", "ls > x", "ls {a,b}", "ls\tx", "ls #x", "time ls", "%1", "-x",
        "ls `id`", "ls é",
    ],
)  # fmt: skip
def test_what_bash_would_interpret_is_left_to_bash(line: str) -> None:
    assert words(line) is None


@pytest.mark.parametrize(
    "more",
    [{"BASH_ENV": "/x"}, {"BASH_FUNC_ls%%": "() { id; }"}, {"SHELLOPTS": "xtrace"}, {"PWD": "/elsewhere"}, {"PATH": ""},
     {"SHLVL": "x"}, {"SHLVL": "1000"}, {"POSIXLY_CORRECT": ""}],
)  # fmt: skip
def test_variables_that_change_bash_leave_the_line_to_bash(more: dict[str, str]) -> None:
    assert words("ls", **more) is None


def test_another_shell_interprets_its_own_lines() -> None:
    assert words("ls", shell="/bin/zsh") is None
    assert without_shell([b"/bin/bash", b"-c", b"ls", b"name"], ENVIRONMENT, "/here") is None
