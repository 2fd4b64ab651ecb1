"""`sandbox run`'s options are read without argparse; argparse reads them the same way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandbox.cli.main import parser_of
from sandbox.cli.run import OPTIONS, parse
from sandbox.errors import SandboxError

names = [name for one in OPTIONS for name in (one.name, one.short) if name]
values = st.sampled_from(["", "5", "a", "A=1", "-", "--", "-5", "-x", "--json", "512m", "1_000", "²", "x y", "-a b"])
word = st.one_of(
    st.sampled_from(names), values, st.builds("{}={}".format, st.sampled_from(names), values), st.text(max_size=3)
)


def slow(words: list[str]) -> dict[str, Any] | None:
    """What argparse makes of it, or None for what it refuses."""
    try:
        found = vars(parser_of("run").parse_args(words))
    except (SandboxError, SystemExit):
        return None
    return found


@given(st.lists(word, max_size=6))
def test_what_is_read_without_argparse_is_what_argparse_reads(words: list[str]) -> None:
    quick = parse(words)
    if quick is not None:
        assert vars(quick) == slow(words), words


def test_ordinary_command_lines_do_not_need_argparse() -> None:
    long = ["--memory", "1g", "--env=A=-1", "--pids=5", "-d", "--", "x"]
    for words in (["--", "true"], ["true", "--json"], long, []):
        assert parse(words) is not None, words
    for words in (["--help"], ["--memroy", "1g"], ["--memory"], ["--pids", "many"], ["--json=1"]):
        assert parse(words) is None, words


def test_every_option_of_the_help_is_in_the_table() -> None:
    shown = {word.rstrip(",") for word in parser_of("run").format_help().split() if word.startswith("--")}
    assert shown - {"--help", "--"} == {one.name for one in OPTIONS}


HEAVY = (
    "argparse",
    "dataclasses",
    "enum",
    "gettext",
    "importlib.metadata",
    "inspect",
    "json",
    "re",
    "signal",
    "socket",
    "typing",
)


def test_a_run_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import os, sys; from sandbox.cli import main;"
        "os._exit = lambda status: None;"
        "status = main.main(['run', '--', 'true']);"
        f"print(status, sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    for _ in range(2):  # the first of all runs makes the certificate authority
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "0 []\n"
