"""Agent files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.config.agents import agents, find, read, split_tools
from sandbox.errors import ConfigError, NotFound


def agent(project: Path, name: str, text: str, directory: str = ".sandbox/agents") -> Path:
    (project / directory).mkdir(parents=True, exist_ok=True)
    (project / directory / name).write_text(text)
    return project / directory / name


@pytest.mark.parametrize(
    "listed",
    [
        "allowed-tools: Read, Bash(git:diff, git:log), Write(*.md)",
        "allowed-tools: [Read, Bash(git:diff, git:log), Write(*.md)]",
        "allowed-tools:\n  - Read\n  - Bash(git:diff, git:log)\n  - Write(*.md)",
        'allowed-tools: ["Read", "Bash(git:diff, git:log)", "Write(*.md)"]',
        "tools: Read, Bash(git:diff, git:log), Write(*.md)",
    ],
)
def test_lists_may_be_inline_or_block_style(tmp_path: Path, listed: str) -> None:
    found = read(str(agent(tmp_path, "a.md", f"---\nname: a\n{listed}\ndisallowed-tools: [Edit]\n---\nBody\n")))
    assert found.allowed == ["Read", "Bash(git:diff, git:log)", "Write(*.md)"]
    assert found.disallowed == ["Edit"]


def test_a_file_without_front_matter_is_an_agent_named_for_the_file(tmp_path: Path) -> None:
    found = read(str(agent(tmp_path, "plain.md", "Just words\n")))
    assert (found.name, found.allowed, found.disallowed, found.command) == ("plain", None, [], [])


def test_all_tools_can_be_written_as_a_star(tmp_path: Path) -> None:
    assert read(str(agent(tmp_path, "a.md", "---\nallowed-tools: *\n---\n"))).allowed == ["*"]
    assert read(str(agent(tmp_path, "b.md", "---\nallowed-tools:\n  - *\n---\n"))).allowed == ["*"]


def test_the_program_may_be_a_line_or_a_list(tmp_path: Path) -> None:
    assert read(str(agent(tmp_path, "a.md", "---\ncommand: sh -c 'echo hi'\n---\n"))).command == ["sh", "-c", "echo hi"]
    assert read(str(agent(tmp_path, "b.md", "---\ncommand: [sh, -c, ls]\n---\n"))).command == ["sh", "-c", "ls"]


def test_both_directories_are_read(tmp_path: Path) -> None:
    agent(tmp_path, "a.md", "---\nname: a\n---\n")
    agent(tmp_path, "b.md", "---\nname: b\n---\n", ".claude/agents")
    assert [one.name for one in agents(str(tmp_path))] == ["a", "b"]
    with pytest.raises(NotFound, match="no agent 'c'; there are: a, b"):
        find(str(tmp_path), "c")


@pytest.mark.parametrize("later", ["rev.md", "zzz.md"])
def test_a_second_file_for_an_agent_takes_nothing_away_of_what_the_first_forbids(tmp_path: Path, later: str) -> None:
    agent(tmp_path, "rev.md", "---\nname: rev\ndisallowed-tools: [Write, Bash]\n---\n", ".claude/agents")
    agent(tmp_path, later, "---\nname: rev\nallowed-tools: *\n---\n")
    with pytest.raises(ConfigError, match=r"agent 'rev' is also defined in .*\.md"):
        find(str(tmp_path), "rev")
    assert agents(str(tmp_path)) == []


@pytest.mark.parametrize(
    "text", ["---\nname: [\n---\n", "---\ncommand: 'a\n---\n", "---\ncommand: {a: b}\n---\n",
             "---\ncommand: \"'open\"\n---\n"]
)  # fmt: skip
def test_a_malformed_agent_file_breaks_only_itself(tmp_path: Path, text: str) -> None:
    agent(tmp_path, "bad.md", text)
    (tmp_path / ".sandbox" / "agents" / "dir.md").mkdir()
    (tmp_path / ".sandbox" / "agents" / "gone.md").symlink_to("nowhere")
    (tmp_path / ".sandbox" / "agents" / "bytes.md").write_bytes(b"---\nname: \xff\n---\n")
    agent(tmp_path, "good.md", "---\nname: good\n---\n")
    assert find(str(tmp_path), "good").name == "good"
    assert [one.name for one in agents(str(tmp_path))] == ["good"]
    with pytest.raises(ConfigError, match=r"bad\.md"):
        find(str(tmp_path), "bad")


def test_a_mistake_in_an_agent_file_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.md:[34]: "):
        read(str(agent(tmp_path, "a.md", "---\nname: a\nmodel: [\n---\n")))


def test_commas_in_parentheses_do_not_separate() -> None:
    assert split_tools("A, B(c, d),E(f)") == ["A", "B(c, d)", "E(f)"]


@pytest.mark.parametrize(
    "text",
    [
        "---\r\nname: a\r\nallowed-tools: Read\r\n---\r\nBody\r\n",
        "---\rname: a\rallowed-tools: Read\r---\rBody\r",
        "--- \nname: a\nallowed-tools: Read\n---\t\nBody\n",
        "\ufeff---\nname: a\nallowed-tools: Read\n---\n",
        "\n \n---\nname: a\nallowed-tools: Read\n---",
    ],
)
def test_front_matter_restricts_whatever_its_line_ends_and_blanks(tmp_path: Path, text: str) -> None:
    file = agent(tmp_path, "a.md", "")
    file.write_bytes(text.encode())
    assert read(str(file)).allowed == ["Read"]


@pytest.mark.parametrize(
    "text",
    [
        "---\nallowed-tools: Read\n",
        "---\nallowed-tools: Read\n --- \nBody\n",
        "---- \nallowed-tools: Read\n----\n",
        "--- # mine\nallowed-tools: Read\n---\n",
        " ---\nallowed-tools: Read\n---\n",
        "---\u00a0x\nallowed-tools: Read\n---\n",
        "---",
    ],
)
def test_front_matter_that_cannot_be_read_is_an_error_and_no_agent_without_restrictions(
    tmp_path: Path, text: str
) -> None:
    file = agent(tmp_path, "a.md", "")
    file.write_bytes(text.encode())
    with pytest.raises(ConfigError, match="a.md"):
        find(str(tmp_path), "a")


def test_an_error_in_front_matter_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.md:4"):
        read(str(agent(tmp_path, "a.md", "\n---\nname: a\nx: @y\nz: 1\n---\n")))
