"""A real server for tests: `sandbox serve` in a process of its own, on a free port of the loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx

from sandbox.server import scopes
from sandbox.server.tokens import Tokens

PROGRAM = (sys.executable, "-m", "sandbox.cli.main")


class Served:
    """One running server and an owner's client of it."""

    def __init__(
        self,
        home: Path,
        *words: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.home = home
        self.environment = {**os.environ, "SANDBOX_HOME": str(home), **(env or {})}
        self.token = self.new_token("*")
        command = [*program, "serve", *(words or ("--port", "0"))]
        self.process = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd or home
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("serving on "):
            raise AssertionError(line + self.process.communicate()[1])
        self.address = line.removeprefix("serving on ").strip()
        self.http = self.client(self.token)

    def client(self, token: str | None, **more: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.address, headers=headers, timeout=120, trust_env=False, **more)

    def new_token(self, *words: str, sandboxes: Sequence[str] = (), lifetime: float | None = None) -> str:
        tokens = Tokens(str(self.home / "server"))
        return tokens.new(scopes.read(list(words)), sandboxes=list(sandboxes), lifetime=lifetime)[0]

    def limited(self, *words: str, sandboxes: Sequence[str] = ()) -> httpx.Client:
        """A client whose token has those scopes alone."""
        return self.client(self.new_token(*words, sandboxes=sandboxes))

    def create(self, name: str | None = None, **config: Any) -> str:
        answer = self.http.post("/v1/sandboxes", json={"config": config, **({"name": name} if name else {})})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def start(self, path: str, body: dict[str, Any]) -> Future[httpx.Response]:
        """A request in a thread of its own, for one that waits for somebody."""
        future: Future[httpx.Response] = Future()

        def run() -> None:
            with self.client(self.token) as client:
                future.set_result(client.post(path, json=body, timeout=120))

        threading.Thread(target=run, daemon=True).start()
        return future

    def end(self, number: int = signal.SIGTERM) -> int:
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        if errors and number == signal.SIGTERM:
            print(errors)  # pytest shows it when the test fails
        return self.process.returncode
