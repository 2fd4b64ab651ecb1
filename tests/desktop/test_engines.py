"""The same desktop behind other walls than bubblewrap's: everything in it is ordinary commands and a Unix socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.desktop.desks import editor, until


def _types_and_hears(engine: str, project: Path, seconds: float) -> None:
    with Sandbox({"engine": engine, "filesystem": {"root": str(project)}, "desktop": {"size": "800x600"}}) as sandbox:
        editor(sandbox, "/tmp/note", seconds)
        sandbox.desktop.type("größe 你好\n")
        sandbox.desktop.keypress("ctrl+d")
        until(lambda: not sandbox.desktop.windows(), seconds)
        assert sandbox.read_text("/tmp/note") == "größe 你好\n"
        assert sandbox.desktop.screenshot().startswith(b"\x89PNG")
        assert sandbox.desktop.record_audio(0.25).startswith(b"RIFF")


@pytest.mark.containers
@pytest.mark.root
@pytest.mark.usefixtures("docker")
def test_a_desktop_in_a_container(tmp_path: Path) -> None:
    _types_and_hears("docker", tmp_path, 60)


@pytest.mark.vm
def test_a_desktop_in_a_virtual_machine(tmp_path: Path) -> None:
    _types_and_hears("qemu", tmp_path, 300)
