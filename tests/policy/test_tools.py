"""AC-4: tool patterns, and shell lines made to look harmless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.config.model import Tools
from sandbox.policy.shell import Unclear, commands
from sandbox.policy.tools import ToolGuard, ToolPattern, project

ROOT = "/p"


def guard(allowed: list[str] | None = None, disallowed: list[str] | None = None, **tools: object) -> ToolGuard:
    return ToolGuard(Tools(**tools), root=ROOT, allowed=allowed, disallowed=disallowed or [])


def bash(line: str, *allowed: str, disallowed: list[str] | None = None) -> bool:
    return bool(guard(list(allowed) or None, disallowed).check("Bash", {"command": line}))


def test_ac_4_disallowed_tools_are_blocked() -> None:
    agent = guard(disallowed=["Write", "Edit"])
    assert not agent.check("Write", {"file_path": "/p/x"})
    assert not agent.check("Edit", {"file_path": "/p/x"})
    assert not agent.check("MultiEdit", {"file_path": "/p/x"})
    assert not agent.check("write", {})
    assert agent.check("Read", {"file_path": "/p/x"})
    assert agent.check("Write", {"file_path": "/p/x"}).reason == "The tool is disallowed: Write"


def test_only_listed_tools_may_be_used() -> None:
    agent = guard(["Read", "Grep", "mcp__github__*"])
    assert agent.check("Read")
    assert agent.check("mcp__github__search")
    assert not agent.check("Write")
    assert not agent.check("mcp__gitlab__search")
    assert not agent.check("read")


def test_the_config_and_the_agent_must_both_agree() -> None:
    agent = ToolGuard(Tools(allowed=["Read"]), root=ROOT, allowed=["Read", "Write"])
    assert agent.check("Read")
    assert not agent.check("Write")


def test_an_agents_own_list_counts_only_when_it_is_enforced() -> None:
    agent = ToolGuard(Tools(enforce_agent_permissions=False), root=ROOT, allowed=["Read"], disallowed=["Write"])
    assert agent.check("Write")


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("Write(*.md)", "/p/README.md", True),
        ("Write(*.md)", "docs/a.md", True),
        ("Write(*.md)", "/p/x.py", False),
        ("Write(src/**)", "src/a/b.py", True),
        ("Write(src/**)", "src/../x.py", False),
        ("Write(src/**)", "/etc/src/x", False),
        ("Write(src/**)", "../p2/src/x", False),
        ("Write(*.md)", "/etc/x.md", False),
    ],
)
def test_path_patterns(pattern: str, path: str, fits: bool) -> None:
    assert bool(guard([pattern]).check("Write", {"file_path": path})) is fits


def test_web_patterns() -> None:
    agent = guard(["WebFetch(domain:docs.python.org)"])
    assert agent.check("WebFetch", {"url": "https://docs.python.org/3/"})
    assert not agent.check("WebFetch", {"url": "https://evil.org/docs.python.org"})
    assert not agent.check("WebFetch", {"url": "https://docs.python.org@evil.org/"})
    assert not agent.check("WebFetch", {"url": "https://docs.python.org.evil.org/"})


@pytest.mark.parametrize(
    "line",
    [
        "git status", "git log --oneline -5", "git diff | git log", "git status && git log; git diff",
        "git log 2>&1", "git log > /dev/null", "git commit -m 'a; rm -rf /'", 'git commit -m "a | b"',
        "git log # rm -rf /", "git show $REV", "if git diff; then git log; fi",
        "git commit -m \"$(git log -1)\"", "git log \\\n --stat",
    ],
)  # fmt: skip
def test_a_line_of_allowed_commands_is_allowed(line: str) -> None:
    assert bash(line, "Bash(git:*)")


@pytest.mark.parametrize(
    "line",
    [
        "git status; rm -rf /", "git status && rm x", "git status | sh", "git status & rm x", "git status\nrm x",
        "git log $(rm x)", "git log `rm x`", "git log \"$(rm x)\"", "(rm x)", "{ rm x; }", "git log <(rm x)",
        "git() { rm x; }; git status", "function git { rm x; }", "alias git=rm; git x", "GIT_PAGER='rm x' git log",
        "PATH=/tmp/evil; git status", "$CMD x", "g''it2 status", "/tmp/git status", "./git status", "eval 'git status'",
        "git log > ../x", "git log >> .bashrc", "git log &> x", "git log >| x", "bash -c 'git status'",
        "git log ${x@P}", "git log ${x:=$(rm x)}", "git log $((x[$(rm)]))", "! rm x", "while rm x; do git log; done",
        "for f in a; do rm $f; done", "case x in x) rm x;; esac", "git log <<EOF\n$(rm x)\nEOF", "git log 'open",
        "", "   ", "#", "git$IFS-x", "{rm,x}", "gi[t] status", "~/git status", "git log\r\nrm x", "time rm x",
        "[[ -n $(rm) ]]", "git log ;;rm x", "coproc rm x", "git log $'\\x41'", "git log \0rm",
    ],
)  # fmt: skip
def test_a_line_with_anything_else_is_not(line: str) -> None:
    assert not bash(line, "Bash(git:*)")


def test_shell_patterns() -> None:
    assert bash("git diff HEAD", "Bash(git:diff, git:log)")
    assert bash("git log", "Bash(git:diff, git:log)")
    assert not bash("git push", "Bash(git:diff, git:log)")
    assert not bash("git -c core.pager=evil diff", "Bash(git:diff)")
    assert not bash("git diffx", "Bash(git:diff)")
    assert bash("git diff x", "Bash(git diff:*)")
    assert bash("npm test", "Bash(npm test)")
    assert not bash("npm test --evil", "Bash(npm test)")
    assert bash("npm run build", "Bash(npm run *)")
    assert not bash("npm install x", "Bash(npm run *)")
    assert bash("anything; at all", "Bash")
    assert bash("anything $(at) all", "Bash(*)")


@pytest.mark.parametrize(
    "line",
    ["rm x", "/bin/rm x", "\\rm x", "'r'm x", "sudo rm x", "env A=b rm x", "bash -c 'rm x'", "ls; rm x", "xargs rm",
     "ls $(rm x)", "sh -c \"ls && rm x\"", "timeout 5 rm x", "if true; then rm x; fi", "$(echo rm) x | $((1))"],
)  # fmt: skip
def test_a_disallowed_command_is_found_in_disguise(line: str) -> None:
    assert not bash(line, disallowed=["Bash(rm:*)"])


def test_other_commands_stay_allowed_beside_a_disallowed_one() -> None:
    assert bash("ls -la | grep rm", disallowed=["Bash(rm:*)"])
    assert bash("git commit -m 'rm x'", disallowed=["Bash(rm:*)"])


def test_writing_by_redirection_needs_the_write_tool() -> None:
    assert not bash("git log > notes.md", "Bash(git:*)")
    assert bash("git log > notes.md", "Bash(git:*)", "Write(*.md)")
    assert not bash("git log > notes.py", "Bash(git:*)", "Write(*.md)")


@pytest.mark.parametrize(
    ("allowed", "disallowed", "read_only", "no_network"),
    [
        (None, [], False, False),
        (None, ["Write", "Edit"], True, False),
        (None, ["Write", "Edit", "WebFetch", "WebSearch"], True, True),
        (["Read", "Grep", "Glob"], [], True, True),
        (["Read", "WebFetch"], [], True, False),
        (["Read", "Bash(git:diff, git:log)"], [], True, True),
        (["Read", "Bash(npm:*)"], [], False, False),
        (["Read", "Bash"], [], False, False),
        (["Read", "Bash"], ["Bash"], True, True),
        (["Read", "Edit(docs/**)"], [], False, True),
    ],
)
def test_tools_are_projected_onto_the_walls(
    allowed: list[str] | None, disallowed: list[str], read_only: bool, no_network: bool
) -> None:
    assert project(guard(allowed, disallowed)) == (read_only, no_network)


@pytest.mark.parametrize("pattern", ["", "()", "Write(", "Write()", "Bash( , )", ")x("])
def test_bad_tool_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"tool pattern|parentheses"):
        ToolPattern(pattern)


@given(st.text("git rmlog;&|()<>$`'\"\\\n{}#=!*x/", max_size=40))
def test_the_shell_reader_never_fails_otherwise_than_by_saying_unclear(line: str) -> None:
    try:
        commands(line)
    except Unclear:
        pass


@given(st.text("git log;&|()<>$`'\"\\\n{}#= x", max_size=30))
def test_a_command_substitution_is_seen_whatever_surrounds_it(noise: str) -> None:
    """It is seen, or the line is refused. test_against_bash.py has bash itself judge."""
    if bash(f"git log $(rm x) {noise}", "Bash(git:*)"):
        raise AssertionError(noise)
    if bash(f"{noise}\nrm x\n", "Bash(git:*)"):
        # Only if the noise quotes or comments what follows.
        assert noise.count("'") % 2 or noise.count('"') % 2 or noise.count("\\") or "<<" in noise
