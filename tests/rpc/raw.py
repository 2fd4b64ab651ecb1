"""A `sandbox --rpc` spoken to with bytes, as a client in any language (or none) would."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Raw:
    """The server's stdin and stdout."""

    def __init__(self, server: subprocess.Popen[bytes]) -> None:
        self.server = server
        self.events: list[dict[str, Any]] = []

    def send(self, data: bytes | dict[str, Any] | list[Any]) -> None:
        """Bytes as they are, or a message as a line."""
        assert self.server.stdin is not None
        self.server.stdin.write(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")
        self.server.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The next message that is no event; those are put aside."""
        assert self.server.stdout is not None
        while True:
            line = self.server.stdout.readline()
            assert line, "the server has ended"
            message: dict[str, Any] = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if message.get("method") != "event":
                return message
            self.events.append(message["params"])

    def ask(self, method: str, id: int | str = 1, **params: Any) -> dict[str, Any]:
        """One request and its next answer."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params, "id": id})
        answer = self.receive()
        assert answer["id"] == id, answer
        return answer

    def error(self) -> int:
        """The code of the next message, which is an error."""
        answer = self.receive()
        code: int = answer["error"]["code"]
        assert answer["error"]["message"]
        return code

    def wait(self) -> int:
        return self.server.wait(timeout=30)


@contextmanager
def serving(command: list[str], *words: str) -> Iterator[Raw]:
    """A server for the time of the block; it has no sandbox yet."""
    with subprocess.Popen([*command, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            yield Raw(server)
        finally:
            server.kill()
