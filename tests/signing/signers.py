"""A real signer for tests: `sandbox sign serve` in a process of its own, with its key behind walls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sandbox.signing.backends.ethereum import library
from tests.signing.keys import KEY, POLICY

PASSWORD = "correct horse 電池"


class RunningSigner:
    """A signer of the home directory `home`. `policy` is the `signing` section of the user's file there."""

    def __init__(self, home: Path, policy: dict[str, Any] | None = None, *, password: str = PASSWORD) -> None:
        home.mkdir(exist_ok=True, mode=0o700)
        self.home = home
        self.policy = {**(policy or POLICY)}
        if self.policy.get("backend", "keystore") == "keystore":
            self.policy["keystore"] = str(home / "key.json")
            keystore = library().Account.encrypt(KEY, PASSWORD, kdf="pbkdf2", iterations=1000)
            (home / "key.json").write_text(json.dumps(keystore))
        (home / "config.yaml").write_text(json.dumps({"signing": self.policy}))
        self.environment = {**os.environ, "SANDBOX_HOME": str(home)}
        read, write = os.pipe()
        os.write(write, password.encode() + b"\n")
        os.close(write)
        words = [sys.executable, "-m", "sandbox.cli.main", "sign", "serve", "--password-fd", str(read)]
        self.process = subprocess.Popen(
            words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=[read]
        )
        os.close(read)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        if not self.said.startswith("signing for "):
            self.error = self.process.communicate()[1]

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`sandbox sign …` as the owner would."""
        return subprocess.run(
            [sys.executable, "-m", "sandbox.cli.main", "sign", *words],
            env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
