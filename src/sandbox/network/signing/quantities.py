"""Reads Ethereum's JSON-RPC spellings strictly, into the one plain form that is judged."""

from __future__ import annotations

import re
from typing import Any

_QUANTITY = re.compile(r"0x(0|[1-9a-fA-F][0-9a-fA-F]{0,63})", re.ASCII)
_FIELDS = {
    "from", "to", "gas", "gasLimit", "gasPrice", "maxFeePerGas", "maxPriorityFeePerGas", "value", "data", "input",
    "nonce", "chainId", "type", "accessList",
}  # fmt: skip


class BadParams(ValueError):
    """The parameters of a call cannot be read."""


def quantity(name: str, value: object) -> int:
    """Parses a quantity: `0x` and hexadecimal digits without leading zeros. Raises BadParams."""
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise BadParams(f"{name} must be a quantity: 0x and hexadecimal digits without leading zeros")
    return int(value, 16)


def transaction(given: object, address: str, chain: int) -> dict[str, Any]:
    """The parameters of `eth_sendTransaction`, as far as they are given, with the specification's names. Raises
    BadParams."""
    if not isinstance(given, dict):
        raise BadParams("the transaction must be an object")
    if unknown := set(given) - _FIELDS:
        raise BadParams(f"{str(min(unknown))[:40]!r} is not a field of a transaction that can be signed here")
    said = {name: value for name, value in given.items() if value is not None}
    if str(said.get("from", address)).lower() != address:
        raise BadParams("from is not the account of this signer")
    _check_type(said)
    plain: dict[str, Any] = {"chainId": chain, "to": said.get("to"), "data": _data(said)}
    if "chainId" in said and quantity("chainId", said["chainId"]) != chain:
        raise BadParams(f"this provider is for chain {chain}")
    plain["value"] = str(quantity("value", said.get("value", "0x0")))
    if "nonce" in said:
        plain["nonce"] = quantity("nonce", said["nonce"])
    if "gas" in said and "gasLimit" in said and said["gas"] != said["gasLimit"]:
        raise BadParams("gas and gasLimit differ")
    gas = said.get("gas", said.get("gasLimit"))
    if gas is not None:
        plain["gasLimit"] = str(quantity("gas", gas))
    for name in ("gasPrice", "maxFeePerGas", "maxPriorityFeePerGas"):
        if name in said:
            plain[name] = str(quantity(name, said[name]))
    return plain


def _check_type(said: dict[str, Any]) -> None:
    kind = quantity("type", said["type"]) if "type" in said else None
    if kind not in (None, 0, 2):
        raise BadParams(f"transactions of type {kind} are not signed here")
    if (kind == 0 and ("maxFeePerGas" in said or "maxPriorityFeePerGas" in said)) or (kind == 2 and "gasPrice" in said):
        raise BadParams("the type and the fees do not go together")
    if said.get("accessList", []) != []:
        raise BadParams("transactions with access lists are not signed here")


def _data(said: dict[str, Any]) -> Any:
    """`input` is another name for `data`. A caller that gives both must give the same value."""
    if "data" in said and "input" in said and said["data"] != said["input"]:
        raise BadParams("data and input differ")
    return said.get("data", said.get("input", "0x"))


def message(params: list[Any], address: str) -> str:
    """The message of `personal_sign`, which may be text or bytes (0x…), as bytes. Raises BadParams."""
    if len(params) not in (2, 3) or not all(isinstance(one, str) for one in params[:2]):
        raise BadParams("personal_sign takes a message and an address")
    text, signer = str(params[0]), str(params[1])
    if signer.lower() != address:
        raise BadParams("the address is not the account of this signer")
    if text.startswith("0x"):
        return text
    try:
        return "0x" + text.encode("utf-8").hex()
    except UnicodeEncodeError:
        raise BadParams("the message is not text") from None
