"""A program of the host that signs: it gets a JSON object on its standard input and prints the signature."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence

from sandbox.errors import SandboxError
from sandbox.signing import strict_json
from sandbox.signing.backends.base import Order, SigningFailed
from sandbox.signing.backends.ethereum import is_of

PATIENCE = 120.0  # seconds: a person may have to touch a device
_LONGEST = 256 * 1024


class CommandSigner:
    """A SignerBackend. The program's output is checked: it must be this address's signature of the request."""

    def __init__(
        self,
        command: Sequence[str],
        address: str,
        check: Callable[[], object] = lambda: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`check` raises SandboxError when what would be run is not to be trusted any more."""
        self._command = [os.path.expanduser(command[0]), *command[1:]]
        self._address = address.lower()
        self._check = check
        self._environment = environment

    def get_address(self) -> str:
        return self._address

    def sign_message(self, order: Order) -> str:
        return self._sign(order)

    def sign_transaction(self, order: Order) -> str:
        return self._sign(order)

    def _sign(self, order: Order) -> str:
        asked = {
            "address": self._address,
            "requestId": order.id,
            "hash": order.hash,
            "kind": order.request.kind,
            "request": order.request.plain(),
        }
        try:
            self._check()
            done = subprocess.run(
                self._command, input=strict_json.dumps(asked) + b"\n", stdout=subprocess.PIPE, timeout=PATIENCE,
                env=self._environment,
            )  # fmt: skip
        except SandboxError as problem:
            raise SigningFailed("signing.command failed: {problem}", problem=problem) from None
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise SigningFailed("signing.command failed: {problem}", problem=type(problem).__name__) from None
        if done.returncode:
            raise SigningFailed("signing.command ended with status {status}", status=done.returncode)
        return checked(done.stdout[:_LONGEST].decode("ascii", "replace").strip(), order, self._address)

    def close(self) -> None:
        pass


def checked(signature: str, order: Order, address: str) -> str:
    """`signature`, when it is one of what was ordered. Raises SigningFailed."""
    if not is_of(signature, order.request, address):
        raise SigningFailed("what came back is not a signature by {address} of what was asked", address=address)
    return signature
