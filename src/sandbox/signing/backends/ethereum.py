"""eth-account: requests in its form, and the check of a signature against its request. Loaded only for signing."""

from __future__ import annotations

from typing import Any

from sandbox.policy.signing.requests import Request, TextMessage, UnsignedTransaction
from sandbox.policy.signing.typed_data import TypedData
from sandbox.signing.calls import keccak, missing
from sandbox.signing.recursion import limit_kept


def library() -> Any:
    """eth-account. Raises SandboxError without the extra `signing`."""
    try:
        with limit_kept():
            import eth_account
            import eth_account.messages
    except ImportError:
        raise missing() from None
    return eth_account


def fields(request: UnsignedTransaction) -> dict[str, Any]:
    """A transaction as eth-account takes it."""
    from sandbox.policy.signing.fields import checksummed

    found: dict[str, Any] = {
        "chainId": request.chain,
        "to": checksummed(request.to, keccak),
        "value": request.value,
        "data": request.data,
        "nonce": request.nonce,
        "gas": request.gas,
    }
    if request.priority_fee is None:
        return {**found, "gasPrice": request.max_fee}
    fees = {"maxFeePerGas": request.max_fee, "maxPriorityFeePerGas": request.priority_fee}
    return {**found, "type": 2, "accessList": [], **fees}


def signable(request: TextMessage | TypedData) -> Any:
    """A message as eth-account takes it."""
    messages = library().messages
    if isinstance(request, TextMessage):
        return messages.encode_defunct(primitive=request.message)
    return messages.encode_typed_data(
        full_message={
            "types": request.types,
            "primaryType": request.primary,
            "domain": request.domain,
            "message": request.message,
        }
    )


def sign(key: bytes, request: Request) -> str:
    """The signed transaction, or a message's signature."""
    account = library().Account
    if isinstance(request, UnsignedTransaction):
        return "0x" + bytes(account.sign_transaction(fields(request), key).raw_transaction).hex()
    return "0x" + bytes(account.sign_message(signable(request), key).signature).hex()


def is_of(signature: str, request: Request, address: str) -> bool:
    """Whether this is a signature by `address` of exactly this request."""
    account = library().Account
    try:
        raw = bytes.fromhex(signature.removeprefix("0x"))
        if not isinstance(request, UnsignedTransaction):
            return str(account.recover_message(signable(request), signature=raw)).lower() == address
        return str(account.recover_transaction(raw)).lower() == address and _same(raw, request)
    except Exception:  # noqa: BLE001 - whatever eth-account raises, it is no such signature
        return False


def _same(raw: bytes, request: UnsignedTransaction) -> bool:
    """Whether a signed transaction has these fields and no others: without its signature it is the same bytes."""
    with limit_kept():
        import rlp  # type: ignore[import-untyped,unused-ignore]

    if request.priority_fee is not None:
        if raw[:1] != b"\x02":
            return False
        got = rlp.decode(raw[1:])
        fees = [request.priority_fee, request.max_fee]
        wanted = [request.chain, request.nonce, *fees, request.gas, request.to, request.value, request.data, []]
        return len(got) == 12 and got[:9] == [_item(one) for one in wanted]
    got = rlp.decode(raw)
    wanted = [request.nonce, request.max_fee, request.gas, request.to, request.value, request.data]
    bound = int.from_bytes(got[6], "big") in (2 * request.chain + 35, 2 * request.chain + 36)
    return len(got) == 9 and bound and got[:6] == [_item(one) for one in wanted]


def _item(value: Any) -> Any:
    if isinstance(value, int):
        return value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes.fromhex(value[2:]) if isinstance(value, str) else value
