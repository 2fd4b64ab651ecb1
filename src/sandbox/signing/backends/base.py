"""The seam between deciding and signing."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sandbox.errors import SandboxError
from sandbox.policy.signing.requests import Request


class SigningFailed(SandboxError):
    """The backend did not sign."""


class Order(NamedTuple):
    """One signature that the policy has allowed. `confirmed`: a person approved exactly this hash."""

    id: str
    request: Request
    hash: str
    confirmed: bool


class SignerBackend(Protocol):
    """Signs what it is ordered to. Safe to use from many threads."""

    def get_address(self) -> str:
        """The account's address, in lower case. Raises SigningFailed."""

    def sign_message(self, order: Order) -> str:
        """The signature (65 bytes, hexadecimal) of a text or typed data. Raises SigningFailed."""

    def sign_transaction(self, order: Order) -> str:
        """The signed transaction, ready to be sent, hexadecimal. Raises SigningFailed."""

    def close(self) -> None:
        """Gives the key up. Idempotent."""
