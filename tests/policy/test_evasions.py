"""Ways around a rule about tools, each of which bash or a browser would have followed."""

from __future__ import annotations

import pytest

from sandbox.config.model import Tools
from sandbox.policy.shell import Unclear, commands
from sandbox.policy.tools import ToolGuard


def refused(pattern: str, tool: str, **given: object) -> bool:
    return not ToolGuard(Tools(), root="/p", disallowed=[pattern]).check(tool, given)


@pytest.mark.parametrize(
    "line",
    [
        'cat <<E"O"F\nEOF\nrm x\nE"O"F', 'cat <<E"O"F\nx\nEOF\nrm x\ncat <<E\nE"O"F\nE',
        "cat <<E\n$\\\n(rm x)\nE", "cat <<E\n$[a[0]]\nE", "cat <<\\\n-E\nE\nrm x",
        "for x do rm y; done", "for do do rm y; done", "for x\ndo rm y; done",
        'echo "$\\\n(rm x)"', "echo $\\\n(rm x)", "cat <\\\n<E\nrm x\nE", "echo `echo \\`rm x\\``",
        "echo ${z[x]}", "echo ${s:x}", "echo ${!x}", "echo $[x]",
        "bash -oc pipefail 'rm x'", "bash -o $X -c 'rm x'", f"watch '{'a ' * 1000} rm x'", "bash rm x", "bash ./rm",
        "printf -v 'a[$(rm x)]' y", "printf -v $X y", "read 'a[$(rm x)]'", "unset 'a[$(rm x)]'", "unset $X",
        "test -v 'a[$(rm x)]'", "[ -v 'a[`rm x`]' ]",
    ],
)  # fmt: skip
def test_a_command_that_bash_would_run_is_not_hidden(line: str) -> None:
    assert refused("Bash(rm:*)", "Bash", command=line)


@pytest.mark.parametrize(
    "line",
    [
        "cat <<EOF\nrm x\nEOF", "cat <<'EOF'\n$(rm x)\nEOF", 'cat <<"EOF"\n`rm x`\nEOF', "cat <<-\\EOF\n\t$x\n\tEOF",
        "git commit -m \"$(cat <<'EOF'\nrm x\nEOF\n)\"", "for x in do rm; do echo $x; done", "for x do echo $x; done",
        "echo ${x:-rm} ${x} ${#x} $1", 'printf "%s" "$x"', 'test -n "$x"', "bash -eo pipefail -c 'ls'",
        "( ( ls ) )", "ls 2>&1", "export PATH=$PATH:/x", "git log \\\n --stat",
    ],
)  # fmt: skip
def test_ordinary_lines_are_still_read(line: str) -> None:
    assert not refused("Bash(rm:*)", "Bash", command=line)


@pytest.mark.parametrize("line", ["( " * 5000 + "rm x" + " )" * 5000, "$(" * 5000 + ")" * 5000])
def test_deep_nesting_is_unclear(line: str) -> None:
    with pytest.raises(Unclear):
        commands(line)


def test_every_path_of_a_call_is_looked_at() -> None:
    assert refused("Write(.env)", "Write", file_path="/p/.env", path="/p/x")
    assert refused("Write(.env)", "Write", file_path="/p/x", path="/p/.env")
    assert refused("Write(.env)", "Write", file_path="/p/.env", path=1)
    assert not refused("Write(.env)", "Write", file_path="/p/x", path="/p/y")


def test_a_path_outside_the_project_can_be_disallowed() -> None:
    assert refused("Read(/etc/**)", "Read", file_path="/etc/passwd")
    assert refused("Read(/etc/**)", "Read", file_path="../etc/passwd")
    assert refused("Read(//etc/**)", "Read", file_path="/etc/passwd")
    assert refused("Write(/p/src/**)", "Write", file_path="src/x")
    assert not refused("Read(/etc/**)", "Read", file_path="/p/x")
    assert not refused("Read(src/**)", "Read", file_path="/etc/src/x")


@pytest.mark.parametrize(
    "url",
    ["https://evil.com/x", "https://u@evil.com", "https://evil.com\\@good.com/", "evil.com/x", "//evil.com",
     "http:/evil.com",
     "https://EVIL.com.:443/", "https://%65vil.com/", "https://ev\til.com/", "https://ｅvil.com/", " https://evil.com"],
)  # fmt: skip
def test_a_url_that_may_be_of_a_disallowed_host_is_refused(url: str) -> None:
    assert refused("WebFetch(domain:evil.com)", "WebFetch", url=url)


@pytest.mark.parametrize("url", ["https://good.com/evil.com", "https://good.com/a@evil.com", "http://good.com:80/?%20"])
def test_a_url_of_another_host_is_not(url: str) -> None:
    assert not refused("WebFetch(domain:evil.com)", "WebFetch", url=url)


def test_a_colon_in_a_word_separates_nothing() -> None:
    assert refused("Bash(curl http://evil*)", "Bash", command="curl http://evil.com/")
    assert refused("Bash(npm run a:b)", "Bash", command="npm run a:b")
    assert not refused("Bash(curl http://evil*)", "Bash", command="curl http://good.com/")


@pytest.mark.parametrize("tool", ["bash", "BASH", "shell"])
def test_the_case_of_a_tools_name_hides_nothing(tool: str) -> None:
    assert refused(f"{tool.title()}(rm:*)", tool, command="ls; rm x")
    assert refused("Edit(.env)", "multiedit", file_path="/p/.env")
