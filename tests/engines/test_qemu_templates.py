"""What is kept of a virtual machine on disk is whole, or not used; and goes when nobody needs it."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.engines.machine import template_store
from sandbox.engines.qemu.steps import Steps

NAMES = ("ram", "state")


@pytest.fixture
def template(tmp_path: Path) -> Path:
    made = tmp_path / "templates" / "one"
    made.mkdir(parents=True, mode=0o700)
    with open(made / "ram", "wb") as ram:
        ram.seek(3 << 20)
        ram.write(b"memory")
        ram.truncate(8 << 20)
    (made / "state").write_bytes(b"state")
    template_store.write_manifest(str(made), NAMES)
    assert template_store.is_good(str(made), NAMES)
    return made


def test_a_changed_file_is_noticed_though_its_size_and_times_were_set_back(template: Path) -> None:
    before = (template / "ram").stat()
    with open(template / "ram", "r+b") as ram:
        ram.seek(3 << 20)
        ram.write(b"MEMORY")
    os.utime(template / "ram", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not template_store.is_good(str(template), NAMES)


def test_bytes_in_what_was_a_hole_are_noticed(template: Path) -> None:
    with open(template / "ram", "r+b") as ram:
        ram.seek(6 << 20)
        ram.write(b"x")
    assert not template_store.is_good(str(template), NAMES)


def test_a_copy_of_the_cache_is_good_after_its_hashes_were_compared(template: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(template, tmp_path / "copy")
    assert template_store.is_good(str(copy), NAMES)


@pytest.mark.parametrize("what", ["a missing file", "a link", "others may read it", "no manifest", "a broken manifest"])
def test_anything_else_than_what_was_made_is_not_used(template: Path, what: str) -> None:
    if what == "a missing file":
        (template / "state").unlink()
    elif what == "a link":
        (template / "state").rename(template / "other")
        (template / "state").symlink_to("other")
    elif what == "others may read it":
        template.chmod(0o755)
    elif what == "no manifest":
        (template / template_store.MANIFEST).unlink()
    else:
        (template / template_store.MANIFEST).write_text('{"ram": [], "state": 3}')
    assert not template_store.is_good(str(template), NAMES)


MAKER = """
import sys, time
from pathlib import Path
from sandbox.engines.machine import template_store
directory, log = sys.argv[1:]

def make(work):
    with open(log, "a") as file:
        file.write("made\\n")
    for name in ("ram", "state"):
        Path(work, name).write_bytes(b"x" * 1000)

print("ready", flush=True)
sys.stdin.readline()
template_store.keep(directory, ("ram", "state"), make)
"""


def test_several_makers_at_once_end_with_one_template(tmp_path: Path) -> None:
    directory, log = tmp_path / "templates" / "one", tmp_path / "log"
    command = [sys.executable, "-c", MAKER, str(directory), str(log)]
    makers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
    for one in makers:
        assert one.stdout is not None and one.stdout.readline() == b"ready\n"
    for one in makers:
        assert one.stdin is not None
        one.stdin.write(b"\n"), one.stdin.flush()
    for one in makers:
        one.communicate()
    assert [one.returncode for one in makers] == [0] * 4
    assert log.read_text() == "made\n"
    assert template_store.is_good(str(directory), NAMES)
    assert sorted(os.listdir(directory.parent)) == ["lock", "one"]


def test_prune_removes_what_nobody_used_for_two_weeks_and_what_killed_makers_left(template: Path) -> None:
    place = template.parent
    shutil.copytree(template, place / "old")
    os.utime(place / "old", (0, 0))
    (place / f"{template_store.HALF_MADE}x").mkdir()
    assert sorted(template_store.prune(str(place))) == [f"{template_store.HALF_MADE}x", "old"]
    assert template_store.is_good(str(template), NAMES)
    assert template_store.prune(str(place / "nowhere")) == []


def test_a_template_that_is_used_is_not_pruned(template: Path) -> None:
    os.utime(template, (0, 0))
    assert template_store.is_good(str(template), NAMES)
    assert template_store.prune(str(template.parent)) == []


def test_the_bar_is_shown_on_a_terminal_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        steps = Steps("making it", 2)
        steps.next()
        steps.done()

    work()
    assert capsys.readouterr().err == ""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "rb", buffering=0) as screen:
        monkeypatch.setattr(sys, "stderr", terminal)
        work()
        shown = b""
        while not shown.endswith(b"\x1b[K"):  # a terminal hands out what was written in pieces
            shown += screen.read(4096)
    assert b"making it [....................]" in shown and b"making it [##########..........]" in shown
    assert shown.endswith(b"\r\x1b[K")
