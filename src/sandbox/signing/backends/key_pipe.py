"""The deciding side of the pipe to the process with the key (`key_process.py`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import Any, BinaryIO

from sandbox.config.signing_section import Signing
from sandbox.signing import strict_json
from sandbox.signing.backends.base import Order, SigningFailed
from sandbox.signing.backends.capability import opened, sealed


class KeyPipe:
    """A SignerBackend. `close_process` ends the process. Raises SigningFailed when it does not take the key."""

    def __init__(
        self,
        write: BinaryIO,
        read: BinaryIO,
        signing: Signing,
        abis: dict[str, Any],
        close_process: Callable[[], object],
    ) -> None:
        self._write, self._read = write, read
        self._close_process = close_process
        self._secret = os.urandom(32)
        self._number = 0
        self._lock = Lock()
        hello = {"secret": self._secret.hex(), "signing": _spelled(signing.whole()), "abis": abis}
        self._address = str(self._asked(strict_json.dumps(hello) + b"\n", "address")).lower()

    def get_address(self) -> str:
        return self._address

    def sign_message(self, order: Order) -> str:
        return self._sign(order)

    def sign_transaction(self, order: Order) -> str:
        return self._sign(order)

    def _sign(self, order: Order) -> str:
        plain: dict[str, Any] = {
            "id": order.id,
            "kind": order.request.kind,
            "request": order.request.plain(),
            "hash": order.hash,
            "confirmed": order.confirmed,
        }
        with self._lock:
            line = sealed(self._secret, self._number + 1, plain)
            if opened(self._secret, self._number, line) is None:  # the other side would not count it
                problem = "the request is too long or too deep"
                raise SigningFailed("the process with the key did not sign: {problem}", problem=problem)
            self._number += 1
            return str(self._asked(line, "signature"))

    def _asked(self, line: bytes, wanted: str) -> Any:
        try:
            self._write.write(line)
            self._write.flush()
            told = strict_json.loads(self._read.readline(2**20))
            if wanted in told:
                return told[wanted]
            problem = str(told["error"])
        except (OSError, ValueError, KeyError, TypeError):
            problem = "it has ended"
        raise SigningFailed("the process with the key did not sign: {problem}", problem=problem)

    def close(self) -> None:
        self._close_process()


def _spelled(value: Any) -> Any:
    """The settings with durations as text, because strict JSON has no fractions."""
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_spelled(item) for item in value]
    return f"{value}s" if isinstance(value, float) else value
