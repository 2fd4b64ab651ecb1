"""A provider that never answers holds up whoever asks it, and nobody else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from sandbox import Sandbox
from sandbox.vfs import FileInfo, MemoryProvider

pytestmark = [
    pytest.mark.walls,
    pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="/dev/fuse cannot be opened here"),
]


class Silent(MemoryProvider):
    """Says nothing about `/stuck` until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.released = Event(), Event()

    def stat(self, path: str) -> FileInfo:
        if path == "/stuck":
            self.asked.set()
            self.released.wait()
        return super().stat(path)


@pytest.fixture
def silent() -> Iterator[Silent]:
    provider = Silent()
    yield provider
    provider.released.set()


@pytest.mark.parametrize("engine", ["auto", "qemu"])
def test_a_provider_that_never_answers_holds_up_neither_the_project_nor_another_provider(
    tmp_path: Path, silent: Silent, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "qemu":
        request.getfixturevalue("machines")
    (tmp_path / "file").write_text("of the project\n")
    other = MemoryProvider()
    mounts = {"/silent": silent, "/tmp/other": other, str(tmp_path / "within"): MemoryProvider()}
    with Sandbox({"engine": engine, "filesystem": {"root": str(tmp_path)}, "vfs": {"mounts": mounts}}) as sandbox:
        assert sandbox.exec("echo before > /silent/there; cat /silent/there").stdout == "before\n"
        waiting = sandbox.spawn(["cat", "/silent/stuck"])
        assert silent.asked.wait(60)
        others = "echo x > /tmp/other/f; cat /tmp/other/f; echo y > within/g; mv within/g h; cat h"
        result = sandbox.exec(f"cat file; echo new > made; ls; {others}", timeout=120)
        assert (result.timed_out, result.stderr) == (False, "")
        assert result.stdout == "of the project\nfile\nmade\nwithin\nx\ny\n"
        assert (tmp_path / "made").read_text() == "new\n"
        silent.released.set()
        assert waiting.wait(60).exit_code == 1  # there is no such file
        waiting.close()
        assert sandbox.exec("cat /silent/there").stdout == "before\n"
