"""git's configuration files are read as the git that is installed reads them."""

from __future__ import annotations

import subprocess
import tempfile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.guards.git_config import UnreadableConfig, harmless, parse, written

PIECES = [*'[]"\\=#; \t\n\rab.C-1é:', "[core]\n", '[a "b"]', "key = v", "\n\t", '"x y"', "\r\n", "[A.b]", "\\\n"]


def as_git_reads(data: bytes) -> list[tuple[str, str | None]] | None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        done = subprocess.run(["git", "config", "-f", file.name, "-l", "-z"], capture_output=True, check=False)
    if done.returncode != 0:
        return None
    records = [one.partition("\n") for one in done.stdout.decode("latin-1").split("\0")[:-1]]
    return [(name, value if line else None) for name, line, value in records]


def spaced(entries: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Newer versions of git keep a tab within a value; older ones make it a space."""
    return [(name, value and value.replace("\t", " ")) for name, value in entries]


def agrees(data: bytes) -> None:
    """Whatever git takes for a setting we see too; where we are not sure, the whole file counts as unreadable."""
    theirs = as_git_reads(data)
    try:
        ours = parse(data)
    except UnreadableConfig:
        return
    assert theirs is None or spaced(ours) == spaced(theirs)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map(lambda parts: "".join(parts).encode()))
@example(b"[core] fsmonitor = x")
@example(b'\xef\xbb\xbf[core]\r\n\tfsmonitor = "a b" # c\r\n')
@example(b"[core]\nx = a\\\n  b ; c\nfsmonitor\n")
def test_no_setting_that_git_sees_is_overlooked(data: bytes) -> None:
    agrees(data)


@pytest.mark.soak
@settings(max_examples=20_000)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map(lambda parts: "".join(parts).encode()))
def test_no_setting_that_git_sees_is_overlooked_at_length(data: bytes) -> None:
    agrees(data)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(["core.a", 'x.b "\\c.d', "x..e"]), st.text('a \t\n"\\#;é', max_size=8))))
def test_what_is_written_is_read_back_by_git(entries: list[tuple[str, str | None]]) -> None:
    data = written([(name, value and value.encode().decode("latin-1")) for name, value in entries])
    assert spaced(as_git_reads(data) or []) == spaced(parse(data))
    assert [value for _, value in parse(data)] == [value and value.encode().decode("latin-1") for _, value in entries]


@pytest.mark.parametrize(
    ("name", "value", "fine"),
    [
        ("core.bare", "true", True), ("remote.origin.url", "https://example.org/x", True),
        ("branch.a.b.merge", "x", True),
        ("remote.origin.url", "git@example.org:x.git", True), ("submodule.a.update", "checkout", True),
        ("submodule.a.update", "!x", False), ("remote.origin.url", "ext::x", False),
        ("remote.o.uploadpack", "x", False),
        ("core.fsmonitor", "true", False), ("core.worktree", "/", False), ("include.path", "x", False),
        ("remote.origin.url", "-x", False), ("remote.o.vcs", "x", False), ("core.unheardof", "x", False),
        ("url.x.insteadof", "y", False), ("filter.x.required", "true", False), ("diff.x.textconv", "y", False),
    ],
)  # fmt: skip
def test_only_what_is_known_to_run_nothing_is_harmless(name: str, value: str, fine: bool) -> None:
    assert harmless((name, value)) is fine
