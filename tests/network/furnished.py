"""A real sandbox with its gate in front of real TLS origins, furnished so that its tenants trust the gate."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox.result import ExecResult
from sandbox.sandbox import Sandbox
from tests.network.lab import LoopThread, Origin, Pki
from tests.network.room import Heard

NAMES = ["api.test", "other.test"]


class Furnished:
    """`origins` answer for `NAMES`, each on a port of its own; everything to them is looked into."""

    def __init__(
        self,
        directory: Path,
        network: Mapping[str, Any],
        *,
        hooks: object | None = None,
        protocols: list[str] | None = None,
    ) -> None:
        self.thread = LoopThread()
        pki = Pki(directory)
        protocols = protocols or ["h2", "http/1.1"]
        self.origins = {name: Origin(self.thread, pki.server_context([name], protocols)) for name in NAMES}
        self.heard = Heard()
        settings = {
            "allowed_hosts": [*(f"{name}:*" for name in NAMES), "127.0.0.1"],
            "ca_certificates": [pki.file],
            "intercept": True,
            **network,
        }
        # The interpreter that runs the tests, with what is installed for it, is there as well.
        config = {"network": settings, "filesystem": {"allow_read": [sys.prefix], "blocked_patterns": []}}
        self.settings = settings
        self.sandbox = Sandbox(config, hooks=hooks)
        self.watch = self.sandbox._gate_thread
        self.watch.resolve = self._resolve  # before the first connection
        self.watch.record = self.heard.record
        self.sandbox.on_event(lambda event: self.heard.emit(event) if event["type"] == "network" else None)
        self.placeholders = self.watch.placeholders

    def _resolve(self, host: str, port: int) -> list[str]:
        if host not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return ["127.0.0.1"]

    def url(self, name: str = "api.test", path: str = "/") -> str:
        return f"https://{name}:{self.origins[name].port}{path}"

    def run(self, *command: str, **more: Any) -> ExecResult:
        return self.sandbox.exec(command[0] if len(command) == 1 else list(command), timeout=120, **more)

    def close(self) -> None:
        self.sandbox.close()
        for one in self.origins.values():
            one.close()
        self.thread.close()


@pytest.fixture
def furnished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Furnished]]:
    """Makes furnished places from a network configuration."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    made: list[Furnished] = []

    def make(network: Mapping[str, Any] | None = None, **more: Any) -> Furnished:
        made.append(Furnished(tmp_path, network or {}, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()
