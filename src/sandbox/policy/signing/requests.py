"""Requests for signatures: a transaction, a text, typed data. Each converts from plain data and back, exactly."""

from __future__ import annotations

from sandbox.policy.signing.fields import MOST_CHAIN, MOST_NONCE, MalformedField, address, data, decimal, name, number
from sandbox.policy.signing.readable import readable
from sandbox.policy.signing.typed_data import TypedData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox.policy.signing.fields import Keccak

MOST_GAS = 2**32
MOST_TEXT = 16 * 1024
_KNOWN = (
    "to", "value", "data", "chainId", "nonce", "gasLimit", "maxFeePerGas", "maxPriorityFeePerGas", "gasPrice",
)  # fmt: skip


class UnsignedTransaction:
    """A transaction with every field that its signature covers. `to` is in lower case.

    EIP-1559 has `max_fee` and `priority_fee`; an older one has its gas price as `max_fee` and None as `priority_fee`.
    There are no other types: none with access lists, blobs or delegations, and none that creates a contract.
    """

    kind = "transaction"
    __slots__ = ("to", "value", "data", "chain", "nonce", "gas", "max_fee", "priority_fee")

    def __init__(
        self, to: str, value: int, data: bytes, chain: int, nonce: int, gas: int, max_fee: int, priority_fee: int | None
    ) -> None:
        self.to = to
        self.value = value
        self.data = data
        self.chain = chain
        self.nonce = nonce
        self.gas = gas
        self.max_fee = max_fee
        self.priority_fee = priority_fee

    @property
    def destination(self) -> str:
        """The address that it is for."""
        return self.to

    @property
    def cost(self) -> int:
        """The most wei that it can take from the account."""
        return self.value + self.gas * self.max_fee

    @classmethod
    def read(cls, given: Mapping[str, object], keccak: Keccak) -> UnsignedTransaction:
        """From the specification's shape. Raises Malformed."""
        for key in given:
            if key not in _KNOWN:
                raise MalformedField(str(key)[:40], "is not a field of a transaction that can be signed here")
        legacy = "gasPrice" in given
        if legacy and ("maxFeePerGas" in given or "maxPriorityFeePerGas" in given):
            raise MalformedField("gasPrice", "and maxFeePerGas exclude each other")
        for key in ("to", "value", "data", "chainId", "nonce", "gasLimit", "gasPrice" if legacy else "maxFeePerGas"):
            if given.get(key) is None:
                raise MalformedField(key, "is missing, and the signature covers it")
        chain = number("chainId", given["chainId"], MOST_CHAIN)
        if chain == 0:
            raise MalformedField("chainId", "must not be 0: such a signature is good on every chain")
        found = cls(
            address("to", given["to"], keccak),
            decimal("value", given["value"]),
            data("data", given["data"]),
            chain,
            number("nonce", given["nonce"], MOST_NONCE),
            decimal("gasLimit", given["gasLimit"], MOST_GAS),
            decimal("gasPrice" if legacy else "maxFeePerGas", given["gasPrice" if legacy else "maxFeePerGas"]),
            None if legacy else decimal("maxPriorityFeePerGas", given.get("maxPriorityFeePerGas", "0")),
        )
        if found.priority_fee is not None and found.priority_fee > found.max_fee:
            raise MalformedField("maxPriorityFeePerGas", "is more than maxFeePerGas")
        return found

    def plain(self) -> dict[str, object]:
        """Plain data that `read` accepts, in one spelling."""
        fees: dict[str, object] = {"gasPrice": str(self.max_fee)}
        if self.priority_fee is not None:
            fees = {"maxFeePerGas": str(self.max_fee), "maxPriorityFeePerGas": str(self.priority_fee)}
        return {
            "chainId": self.chain,
            "to": self.to,
            "value": str(self.value),
            "data": f"0x{self.data.hex()}",
            "nonce": self.nonce,
            "gasLimit": str(self.gas),
            **fees,
        }


class TextMessage:
    """EIP-191, version 0x45 (`personal_sign`)."""

    kind = "text"
    cost = 0
    destination = ""
    __slots__ = ("message",)

    def __init__(self, message: bytes) -> None:
        self.message = message

    @property
    def text(self) -> str | None:
        """The text, if a person can read it; None for bytes, a hash, an empty text, or text with invisible parts."""
        try:
            text = self.message.decode("utf-8")
        except UnicodeDecodeError:
            return None
        return text if len(self.message) != 32 and readable(text) else None

    @classmethod
    def read(cls, given: Mapping[str, object], keccak: Keccak) -> TextMessage:
        """From `{"message": "0x…"}`. Raises Malformed."""
        if set(given) != {"message"}:
            raise MalformedField("message", "must be the only field")
        return cls(data("message", given["message"], MOST_TEXT))

    def plain(self) -> dict[str, object]:
        return {"message": f"0x{self.message.hex()}"}


Request = UnsignedTransaction | TextMessage | TypedData
_KINDS: dict[str, Callable[[Mapping[str, object], Keccak], Request]] = {
    "transaction": UnsignedTransaction.read,
    "text": TextMessage.read,
    "typed": TypedData.read,
}


def read_request(kind: object, given: object, keccak: Keccak) -> Request:
    """A request of that kind. Raises Malformed."""
    reader = _KINDS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise MalformedField("kind", "must be transaction, text or typed")
    if not isinstance(given, dict):
        raise MalformedField("request", "must be an object")
    return reader(given, keccak)


def request_id(value: object) -> str:
    """A request's id. Raises Malformed."""
    return name("requestId", value)
