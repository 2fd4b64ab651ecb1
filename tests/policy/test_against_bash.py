"""Lines that are read as harmless are given to bash itself, in a sandbox: it must not run the disallowed program."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.config.model import Tools
from sandbox.policy.tools import ToolGuard
from tests import soaking

GUARD = ToolGuard(Tools(), root="/p", disallowed=["Bash(rm:*)"])
INSIDE = Path(__file__).with_name("run_lines_in_bash.py")

# fmt: off
LINES = [
    "ls >&a='$(rm x)'", "BASH_ENV=/dev/stdin bash -c : <<<${a/b/rm}'rm x'", "BASH_ENV=/dev/stdin bash -c : <<<$a'rm x'",
    "a=r; BASH_ENV=/dev/stdin bash -c : <<<$a'm x'", "GIT_PAGER=$b'rm x' git -p log", "GIT_PAGER=r$b'm x' git -p log",
    "b=; GIT_PAGER=${a:-r}${b-z}'m x' git -p log",
    "git -c core.pager=\"$b\"'rm x' -p log", "a=RM; PAGER=${a,,} git -p log",
    "rm x", "b='x[$(rm x)]'; a[b]=1", "b='a[$(rm x)]'; declare -i c=b", "b='a[$(rm x)]'; declare -i c; c=b",
    "a=r m=m b='a[$($a$m x)]'; let c=b", "PS4='$(rm x)' bash -xc true", "BASH_ENV=/dev/stdin bash -c : <<<'rm x'",
    "export PS4='$(rm x)'; bash -xc true", "exec 3<<<'rm x'; . /dev/fd/3", "read b <<<'a[$(rm x)]'; declare -i c=b",
    "set -- 'a[$(rm x)]'; declare -i c=$1", "printf -v b 'a[$(%s x)]' rm; let c=b", "git -c alias.x='!rm x '[[ x",
    "for b in 'a[$(rm x)]'; do let c=b; done", "a=r b=m; trap '$a$b x' EXIT", "mapfile -C'rm x' -c 1 a <<<x",
    "env GIT_PAGER='rm x' git log", "GIT_PAGER='rm x' git -p log", ". ${a:-rm}", "ls $(rm x)", "f() { rm x; }; f",
    "eval 'rm x'", "a='rm x'; $a", "bash -c 'rm x'", "trap 'rm x' EXIT", "echo rm x | bash", "alias l='rm x'\nl",
    "export a='$(rm x)'; echo ${a@P}", "{ rm x; }", "! rm x", "time rm x", "coproc rm x", "command rm x",
    "xargs rm <<<x", "read a <<<rm; $a x", "compgen -C 'rm x'", "compgen -W '$(rm x)'", "exec rm x",
    "case a in a) rm x;; esac", "test -v 'a[$(rm x)]'", "wait -p 'a[$(rm x)]' -n", "a=(rm x); \"${a[@]}\"",
    "echo \"${a:-$(rm x)}\"", "hash -p rm q; q x", "echo $[a[$(rm x)]]", "((a[$(rm x)]))", "getopts a 'b[$(rm x)]' -a",
    "mapfile 'a[$(rm x)]' <<<1", "[ 'a[$(rm x)]' -eq 1 ]", "[[ 'a[$(rm x)]' -eq 1 ]]", "printf '%d' 'a[$(rm x)]'",
    "b='a[$(rm x)]'; echo ${x:b}", "shopt -s expand_aliases; alias l=rm; \nl x", "source <(echo rm x)",
    "IFS=_; a=rm_x; $a", "ls >$(rm x)", "ls <<<$(rm x)", "A=b rm x", "ls # \nrm x", "ls \\# ;rm x", "ls a#b;rm x",
    "ls ${x#\\}};rm x", "select a in b; do rm x; break; done <<<1", "until rm x; do break; done",
    "ls & rm x", "ls &> a rm x; rm x", "ls 2>&1; rm x", "1>a rm x", "{fd}>a rm x", "<<E rm x\nE", "a[0]=1 rm x",
    "ls;\trm x", "exec -a q rm x", "builtin eval rm x", "trap 'rm x' DEBUG; ls", "set -- rm x; \"$@\"",
    "echo `echo \\`rm x\\``", "$'rm' x", "r\\\nm x", "if rm x; then ls; fi", "for ((i=0;i<1;i++)); do rm x; done",
    "set a; for x do rm x; done", "function f { rm x; }; f", "ls \"`rm x`\"", "cat <<-E\n\t`rm x`\n\tE",
    "cat <<E1 <<E2\nE1\n$(rm x)\nE2", "cat << \"E\"\nE\nrm x",
]
PIECES = [
    "rm x", "rm", "ls ", "echo ", "a", "b", "x", "=", "+=", "a=", "b=", "a=rm", "$a", "${a}", "${a:-rm}", "${a/b/rm}",
    "$(", ")", "`", "(", "((", "))", "$((", "[", "]", "[[ ", " ]]", "a[", "]=", "{ ", "; }", ";", ";;", "&", "&&",
    "|", "||", "|&", "&>", "\n", " ", "\t", "\\", "\\\n", "'", '"', "$'", '$"', "<", ">", "<<E", "<<-E", "<<'E'",
    "\nE\n", "<<<", "<(", ">(", "2>&1", "#", "if ", "then ", "fi", "for ", "in ", "do ", "done", "while ", "case ",
    "esac", "function ", "f()", "time ", "! ", "coproc ", "eval ", "exec ", "command ", "builtin ", "env ", "export ",
    "declare ", "-i ", "local ", "let ", "test ", "read ", "printf ", "-v ", "trap ", "alias ", ". ", "/dev/stdin",
    "set ", "-- ", "shopt ", "-s ", "bash ", "-c ", "-x ", "xargs ", "PS4=", "BASH_ENV=", "IFS=m", "hash -p ",
    "wait ", "complete ", "compgen ", "-C ", "-W ", "mapfile ", "EXIT", "DEBUG", "1", "$1", "$@", "$_", "!!", "~",
    "*", "r?", "{rm,x}", "r\\m", "'r'm", "\r", "é", "\x0c", "\u00a0", "cat ", "|bash", ":", "-", "/", "{a}>",
    "timeout 1 ", "find . -exec ", "git -c ", "\\;", "true ", "PAGER='rm x' ",
]
# fmt: on


def changed(chance: random.Random) -> str:
    """A line that would run the program, with a few pieces put in, left out or taken from another."""
    line = chance.choice(LINES)
    for _ in range(chance.randint(0, 4)):
        start = chance.randint(0, len(line))
        end = min(len(line), start + chance.choice((0, 0, 1, 2, 4)))
        other = chance.choice(LINES)
        rest = line[end:] if chance.random() < 0.8 else other[chance.randint(0, len(other)) :]
        line = line[:start] + chance.choice(["", chance.choice(PIECES)]) + rest
    return line


def allowed(lines: Iterator[str]) -> list[str]:
    return [line for line in lines if GUARD.check("Bash", {"command": line})]


def run_by_bash(project: Path, lines: list[str]) -> list[str]:
    """Those of `lines` in which bash ran the program."""
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        result = sandbox.exec(["python3", "-c", INSIDE.read_text()], input=json.dumps(lines), check=True)
    found: list[str] = json.loads(result.stdout)
    return found


def test_what_would_be_run_is_noticed(tmp_path: Path) -> None:
    assert run_by_bash(tmp_path, ["ls", "rm x", "echo rm", "bash -c 'rm x'", "b='x[$(rm x)]'; a[b]=1"]) == [
        "rm x", "bash -c 'rm x'", "b='x[$(rm x)]'; a[b]=1",
    ]  # fmt: skip


def test_bash_runs_the_disallowed_program_in_no_line_that_is_allowed(tmp_path: Path) -> None:
    chance = random.Random(20261117)
    assert not allowed(iter(LINES))
    assert run_by_bash(tmp_path, allowed(changed(chance) for _ in range(1500))) == []


@pytest.mark.soak
def test_nor_in_a_long_search(tmp_path: Path) -> None:
    for number in soaking.rounds():
        chance = random.Random(number)
        assert run_by_bash(tmp_path, allowed(changed(chance) for _ in range(1500))) == []
