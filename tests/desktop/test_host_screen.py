"""This machine's own screen: only with its owner's consent, each time, and on the record."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.errors import Denied, SandboxError
from tests.desktop.desks import pixels


class Owner:
    """Answers what the sandbox asks."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def on_ask(self, ask: object) -> str:
        self.asked.append(ask.text)  # type: ignore[attr-defined]
        return self.answer


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A display of the host's, as a person has one."""
    argv = ["Xvnc", "-displayfd", "1", "-geometry", "320x240", "-depth", "24", "-rfbport", "-1",
            "-rfbunixpath", str(tmp_path / "vnc"), "-SecurityTypes", "None", "-nolisten", "tcp"]  # fmt: skip
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        monkeypatch.setenv("DISPLAY", f":{server.stdout.readline().strip()}")
        monkeypatch.setenv("XAUTHORITY", "/dev/null")
        yield
        server.terminate()


def of_the_host(tmp_path: Path, owner: Owner | None) -> Sandbox:
    (tmp_path / "project").mkdir(exist_ok=True)
    settings = {"filesystem": {"root": str(tmp_path / "project")}, "desktop": {"display": "host"}}
    return Sandbox(settings, hooks=owner)


def test_it_is_seen_when_the_owner_allows_it_which_is_on_the_record(display: None, tmp_path: Path) -> None:
    owner = Owner("once")
    with of_the_host(tmp_path, owner) as sandbox:
        assert pixels(sandbox.desktop.screenshot())[:2] == (320, 240)
        assert "DISPLAY" not in sandbox.exec("env").stdout  # programs inside have no part in it
        record = Path(sandbox.record.directory, "audit.jsonl").read_text()
    assert len(owner.asked) == 1 and "this machine's own screen" in owner.asked[0]
    entries = [json.loads(line) for line in record.splitlines()]
    assert any(one["type"] == "privileged_capability_invocation" for one in entries)
    with of_the_host(tmp_path, owner) as again:
        again.desktop.screenshot()
    assert len(owner.asked) == 2


@pytest.mark.parametrize("owner", [Owner("deny"), None])
def test_it_is_not_seen_when_the_owner_denies_it_or_is_absent(
    display: None, tmp_path: Path, owner: Owner | None
) -> None:
    with of_the_host(tmp_path, owner) as sandbox, pytest.raises(Denied, match="desktop.display"):
        sandbox.desktop.screenshot()


def test_a_machine_without_a_display_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    with of_the_host(tmp_path, Owner("once")) as sandbox, pytest.raises(SandboxError, match="no X display"):
        sandbox.desktop.screenshot()
