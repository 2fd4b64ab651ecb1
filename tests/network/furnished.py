"""A real sandbox with its gate in front of real TLS origins, furnished so that its tenants trust the gate."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import sandbox.sandbox as life
from sandbox.config.model import Config, Network
from sandbox.engines.base import Plan
from sandbox.engines.layout import layout
from sandbox.network.placeholders import placeholders
from sandbox.network.trust import trusted
from sandbox.network.watch import Watch
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
        monkeypatch: pytest.MonkeyPatch,
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
        self.network = Network.read(settings)
        self.placeholders = placeholders(self.network.secrets)
        self.watch = Watch(
            {},
            self.network,
            sandbox_id="vm-test",
            emit=self.heard.emit,
            record=self.heard.record,
            dial=lambda address, port: self.sandbox.dial(address, port),
            hooks=hooks,
            resolve=self._resolve,
            placeholders=self.placeholders,
        )
        authority = self.watch.ca_certificate()
        assert authority is not None
        self.trust = trusted(authority)

        def furnished(config: Config, identity: str, environment: Mapping[str, str]) -> Plan:
            plan = layout(config, identity, environment)
            plan.files += self.trust.files
            plan.operations += self.trust.mounts()
            plan.environment |= self.trust.environment
            return plan

        monkeypatch.setattr(life, "layout", furnished)
        # The interpreter that runs the tests, with what is installed for it, is there as well.
        self.sandbox = Sandbox({"network": settings, "filesystem": {"allow_read": [sys.prefix]}})
        self.watch.sockets.update(self.sandbox._guest.sockets)
        self.watch.start()

    def _resolve(self, host: str, port: int) -> list[str]:
        if host not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return ["127.0.0.1"]

    def url(self, name: str = "api.test", path: str = "/") -> str:
        return f"https://{name}:{self.origins[name].port}{path}"

    def run(self, *command: str, **more: Any) -> ExecResult:
        return self.sandbox.exec(command[0] if len(command) == 1 else list(command), timeout=120, **more)

    def close(self) -> None:
        self.watch.close()
        self.sandbox.close()
        for one in self.origins.values():
            one.close()
        self.thread.close()


@pytest.fixture(name="furnished")
def furnished_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Furnished]]:
    """Makes furnished places from a network configuration."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    made: list[Furnished] = []

    def make(network: Mapping[str, Any] | None = None, **more: Any) -> Furnished:
        made.append(Furnished(tmp_path, network or {}, monkeypatch, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()
