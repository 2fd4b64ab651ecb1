"""Programs are looked for outside the machine first, and nobody inside can tell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.engines.machine.path_search import PathSearch
from sandbox.plan.plan import Plan

pytestmark = [pytest.mark.walls]


@pytest.fixture
def search() -> Iterator[PathSearch]:
    made = PathSearch(os.getpid(), Plan(), {"machine": {"scratch": [[b"/run", 0o755, 1]]}})
    yield made
    made.close()


def lacking(search: PathSearch, name: str, *directories: object) -> int:
    path = ":".join(map(str, directories))
    return search.lacking({"argv": [name.encode()], "env": [b"PATH=/elsewhere", b"PATH=" + path.encode()]})


def test_only_what_certainly_has_no_such_program_is_left_out(search: PathSearch, tmp_path: Path) -> None:
    empty, full, link = tmp_path / "empty", tmp_path / "full", tmp_path / "link"
    empty.mkdir()
    full.mkdir()
    link.symlink_to(empty)
    (full / "program").symlink_to("nowhere")
    assert lacking(search, "program", empty, tmp_path / "none/below", full, "/usr/bin") == 2
    for unsure in (link, "relative", f"{empty}/../empty", f"{empty}/", "", "/proc/self", "/run/none", full / "program"):
        assert lacking(search, "program", empty, unsure, empty, "/usr/bin") == 1
    assert lacking(search, "program", empty) == 0  # the last one is always looked into
    assert lacking(search, "./program", empty, "/usr/bin") == 0
    env = [b"PATH=" + os.fsencode(full) + b":/usr/bin"]
    assert search.lacking({"argv": [b"bash"], "direct": [b"program"], "env": env}) == 0


@pytest.mark.usefixtures("machines")
def test_a_program_is_found_where_the_path_says_also_when_a_command_has_just_made_it(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    path = {"PATH": f"{tmp_path}/first:/tmp/own:{tmp_path}/second:/usr/bin:/bin"}
    make = "mkdir -p /tmp/own; printf '#!/bin/sh\\necho %s' $1 > $2/tool; chmod +x $2/tool"
    with Sandbox({"engine": "qemu", "filesystem": {"root": str(tmp_path)}}) as sandbox:
        with pytest.raises(Exception, match="tool"):
            sandbox.exec(["tool"], env=path)
        for place in (f"{tmp_path}/second", "/tmp/own", f"{tmp_path}/first"):  # each before the last one
            sandbox.exec(["/bin/sh", "-c", make, "sh", place, place], check=True)
            assert sandbox.exec(["tool"], env=path).stdout == f"{place}\n"
