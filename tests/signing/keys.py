"""A key for tests, a policy that allows something, and a service around them with a real ledger and record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandbox.audit.reading import entries
from sandbox.audit.record import Record
from sandbox.config.signing_section import Signing
from sandbox.signing.backends.base import Order
from sandbox.signing.backends.ethereum import library, sign
from sandbox.signing.calls import rules_of
from sandbox.signing.clock import Clock
from sandbox.signing.ledger import Ledger
from sandbox.signing.service import SigningService

KEY = bytes.fromhex("4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318")
ADDRESS = "0x2c7536e3605d9c16a7a3d7b1898e529396a65c23"
FRIEND, FOE, TOKEN = "0x" + "11" * 20, "0x" + "66" * 20, "0x" + "22" * 20
CHAIN = 1337
ETHER, GWEI = 10**18, 10**9

POLICY: dict[str, Any] = {
    "enabled": True,
    "chains": [CHAIN],
    "allowed_addresses": [FRIEND],
    "denied_addresses": [FOE],
    "contracts": {
        TOKEN: {"functions": {"transfer(address to, uint256 amount)": {"arguments": {"to": {"allowed": [FRIEND]},
                                                                                     "amount": {"max": "1000"}}}}}
    },
}  # fmt: skip


class LocalKey:
    """A backend in this process: the tests of the process behind walls have the other."""

    def __init__(self) -> None:
        self.orders: list[Order] = []

    def get_address(self) -> str:
        return ADDRESS

    def sign_message(self, order: Order) -> str:
        self.orders.append(order)
        return sign(KEY, order.request)

    def sign_transaction(self, order: Order) -> str:
        return self.sign_message(order)

    def close(self) -> None:
        pass


class SetClock(Clock):
    """A clock that tests set. `passes` is time that really goes by."""

    def __init__(self) -> None:
        self.set_to, self.started, self.id = 1_700_000_000.0, 100.0, "boot-1"

    def wall(self) -> float:
        return self.set_to

    def uptime(self) -> float:
        return self.started

    def boot(self) -> str:
        return self.id

    def passes(self, seconds: float) -> None:
        self.set_to += seconds
        self.started += seconds

    def restarts(self) -> None:
        self.id, self.started = f"{self.id}+", 1.0


class Bench:
    """A service, and all that it is made of. Two of the same directory are two processes' services."""

    def __init__(self, directory: Path, policy: dict[str, Any] | None = None, clock: Clock | None = None) -> None:
        self.key = LocalKey()
        self.ledger = Ledger(str(directory / "ledger.db"), clock)
        self._record = str(directory / "audit")
        record = Record(self._record)
        self.service = SigningService(rules_of(Signing.read(policy or POLICY)), self.ledger, self.key, record)
        self._count = 0

    def ask(self, id: str | None = None, kind: str = "transaction", asker: str = "sandbox:a", **changes: Any) -> Any:
        """Submits a transaction within the policy, but for `changes`."""
        self._count += 1
        asked = changes.pop("request", None) or transaction(**changes)
        return self.service.submit(
            id or f"r{self._count}", kind, asked, asker=asker, sandbox=asker.removeprefix("sandbox:")
        )

    def entries(self) -> list[dict[str, Any]]:
        return [dict(one) for one in entries(self._record)]


def transaction(**changes: Any) -> dict[str, Any]:
    """In the specification's shape."""
    plain: dict[str, Any] = {
        "to": FRIEND,
        "value": "1000",
        "data": "0x",
        "chainId": CHAIN,
        "nonce": 0,
        "gasLimit": "21000",
        "maxFeePerGas": str(GWEI),
        "maxPriorityFeePerGas": "0",
    }
    plain.update(changes)
    return {name: value for name, value in plain.items() if value is not ...}


def sender(raw: str) -> str:
    """Who signed a transaction."""
    return str(library().Account.recover_transaction(raw)).lower()
