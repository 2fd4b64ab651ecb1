"""A tenant fills the disk that the record is on: then nothing can be recorded, and everything else holds."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.audit.record import Head, Record
from sandbox.errors import SandboxError
from sandbox.guards import watch_later
from sandbox.guest.process import Process

pytestmark = pytest.mark.walls

PLANT = (
    "for d in a b c; do git init -q $d; git -C $d config core.fsmonitor 'touch %s';"
    " : > $d/.git/hooks/post-checkout; done; : > .git/commondir; : > .mcp.json"
)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Nothing can be recorded while there is something in this list."""
    held: list[bool] = []
    write = Record._write_line

    def written(self: Record, head: Head, body: str) -> Head:
        if held:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, head, body)

    monkeypatch.setattr(Record, "_write_line", written)
    yield held
    held.clear()


@pytest.mark.parametrize("watched", [True, False])
def test_what_git_of_the_host_would_run_is_undone_and_told(
    project: Path, tmp_path: Path, full: list[bool], monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    if not watched:
        monkeypatch.setattr(watch_later, "DELAY", 3600.0)
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    sandbox = Sandbox({"filesystem": {"root": str(project)}})
    assert not watched or sandbox._guard.wait_until_watching(60)
    command = sandbox.spawn(["sh", "-c", f"read go; {PLANT % (tmp_path / 'ran')}"])
    assert isinstance(command, Process) and command.stdin is not None
    full.append(True)
    os.write(command.stdin, b"go\n")
    with suppress(SandboxError):  # its end cannot be recorded
        command.wait()
    with pytest.raises(SandboxError, match="No space left"):
        sandbox.close()
    for name in "abc":
        assert "fsmonitor" not in (project / name / ".git" / "config").read_text()
        assert not (project / name / ".git" / "hooks" / "post-checkout").exists()
    assert not (project / ".git" / "commondir").exists()
    undone = {path for path, _ in sandbox._undone}
    assert {f"{project}/{name}/.git/config" for name in "abc"} | {f"{project}/.git/commondir"} <= undone
    assert sandbox._made == [f"{project}/.mcp.json"]


def test_blocked_files_that_appear_are_hidden(project: Path, full: list[bool]) -> None:
    sandbox = Sandbox({"filesystem": {"root": str(project)}})
    assert sandbox._guard.wait_until_watching(60)
    script = "while read name; do cat $name && echo READ || echo REFUSED; done"
    command = sandbox.spawn(["sh", "-c", script])
    assert isinstance(command, Process) and command.stdin is not None and command.stdout is not None
    full.append(True)
    for name in (".env", "a.pem"):
        (project / name).write_text("HIDDEN")
        sandbox._guard.catch_up(60)
        os.write(command.stdin, f"{name}\n".encode())
        assert os.read(command.stdout, 100) == b"REFUSED\n"
    with suppress(SandboxError):
        command.kill()
    with pytest.raises(SandboxError, match="No space left"):
        sandbox.close()  # what is missing in the record is not passed over


def test_a_sandbox_that_is_to_end_ends(project: Path, full: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda told: None)  # the thread that ends it prints why
    sandbox = Sandbox({"filesystem": {"root": str(project)}})
    full.append(True)
    sandbox.extend(lifetime=0.01)
    (thread,) = [one for one in threading.enumerate() if one.name == "sandbox-lifetime"]
    thread.join(60)
    assert sandbox._closed and not sandbox._running.alive()
    assert sandbox.end_reason == "its lifetime is over"
