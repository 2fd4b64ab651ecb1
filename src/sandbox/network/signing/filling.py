"""Fills in what the signature must cover and the caller left out. Asks the chain's node, as wallets do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sandbox.network.signing.quantities import BadParams, quantity

Node = Callable[[str, Any], Awaitable[Any]]


async def filled(plain: dict[str, Any], address: str, node: Node) -> dict[str, Any]:
    """The transaction with nonce, fees and gas. Raises BadParams, and whatever `node` raises."""
    if plain.get("nonce") is None:
        plain["nonce"] = quantity("nonce", await node("eth_getTransactionCount", [address, "pending"]))
    if "gasPrice" not in plain and "maxFeePerGas" not in plain:
        await _fees(plain, node)
    if "maxFeePerGas" in plain:
        plain.setdefault("maxPriorityFeePerGas", "0")
    if plain.get("gasLimit") is None:
        value = plain.get("value")
        if not isinstance(value, str) or not value.isascii() or not value.isdigit() or len(value) > 39:
            raise BadParams("value must be a whole number in decimal digits")
        asked = {"from": address, "to": plain.get("to"), "data": plain.get("data", "0x"), "value": hex(int(value))}
        plain["gasLimit"] = str(quantity("gas", await node("eth_estimateGas", [asked])))
    return plain


async def _fees(plain: dict[str, Any], node: Node) -> None:
    block = await node("eth_getBlockByNumber", ["latest", False])
    base = quantity("baseFeePerGas", block.get("baseFeePerGas") if isinstance(block, dict) else None)
    given = plain.get("maxPriorityFeePerGas")
    if given is None:
        tip = quantity("tip", await node("eth_maxPriorityFeePerGas", []))
    elif isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 40:
        tip = int(given)
    else:
        raise BadParams("maxPriorityFeePerGas must be a whole number in decimal digits")
    plain.update(maxFeePerGas=str(2 * base + tip), maxPriorityFeePerGas=str(tip))
