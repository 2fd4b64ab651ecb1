"""Contract calls, decoded for the rules and for people. eth-abi is loaded on first use."""

from __future__ import annotations

import json
import os
from typing import Any

from sandbox.config.signing_section import Signing
from sandbox.errors import ConfigError, SandboxError
from sandbox.policy.signing.requests import Request, UnsignedTransaction
from sandbox.policy.signing.rules import Function, Rules
from sandbox.policy.signing.typed_data import TypedData
from sandbox.signing.recursion import limit_kept

_LONGEST_ABI = 4 * 2**20


def keccak(data: bytes) -> bytes:
    """Ethereum's hash. Raises SandboxError without the extra `signing`."""
    try:
        with limit_kept():
            from eth_hash.auto import keccak as hashed
    except ImportError:
        raise missing() from None
    return bytes(hashed(data))


def missing() -> SandboxError:
    return SandboxError("signing needs eth-account; install agent-sandbox[signing]")


def rules_of(signing: Signing) -> Rules:
    """Compiles the section, with the ABI files that it names. Raises ConfigError."""
    return Rules(signing, keccak, abis_of(signing))


def abis_of(signing: Signing) -> dict[str, list[Any]]:
    """Reads the ABI files that the section names. Raises ConfigError."""
    return {key: _abi(key, one.abi) for key, one in signing.contracts.items() if one.abi is not None}


def _abi(key: str, file: str) -> list[Any]:
    path = f"signing.contracts.{key}.abi"
    try:
        with open(os.path.expanduser(file), encoding="utf-8") as opened:
            found = json.loads(opened.read(_LONGEST_ABI))
    except (OSError, ValueError) as problem:
        raise ConfigError("cannot read {abi}: {problem}", abi=file, problem=problem, path=path) from None
    found = found.get("abi") if isinstance(found, dict) else found
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ConfigError("{abi} is not an ABI: a list of functions", abi=file, path=path)
    return found


def arguments(request: Request, rules: Rules) -> list[Any] | None:
    """The decoded arguments of a call. None if the function is not known, or the data is not their exact encoding."""
    if not isinstance(request, UnsignedTransaction):
        return None
    function = rules.function(request.to, request.data)
    return None if function is None else _decoded(function, request.data[4:])


def _decoded(function: Function, data: bytes) -> list[Any] | None:
    with limit_kept():
        from eth_abi.abi import decode, encode

    try:
        values = decode(function.types, data)
        # An encoding with gaps, overlaps or a tail could be decoded differently by others.
        exact = encode(function.types, values) == data
    except Exception:  # noqa: BLE001 - whatever eth-abi raises, these are not its arguments
        return None
    return list(values) if exact else None


def described(request: Request, rules: Rules) -> dict[str, Any]:
    """What a person is shown: amounts in ether, the call with its arguments by name."""
    if isinstance(request, UnsignedTransaction):
        shown: dict[str, Any] = {
            "what": "transaction",
            "chainId": request.chain,
            "to": request.to,
            "ether": ether(request.value),
            "most": ether(request.cost),
            "nonce": request.nonce,
        }
        if request.data:
            shown["call"] = _call(request, rules)
        return shown
    if isinstance(request, TypedData):
        plain = request.plain()
        return {"what": "typed data", "domain": plain["domain"], "type": request.primary, "message": plain["message"]}
    return {"what": "message", "text": request.text, "bytes": f"0x{request.message.hex()}"}


def _call(request: UnsignedTransaction, rules: Rules) -> dict[str, Any]:
    function, values = rules.function(request.to, request.data), arguments(request, rules)
    if function is None or values is None:
        return {"data": f"0x{request.data.hex()}"}
    named = {
        name or str(at): _plain(value) for at, (name, value) in enumerate(zip(function.names, values, strict=True))
    }
    return {"function": function.signature, "arguments": named}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | bool) else str(value)


def ether(wei: int) -> str:
    """An amount as people read it, exact."""
    whole, part = divmod(wei, 10**18)
    return f"{whole}.{part:018}".rstrip("0").rstrip(".") if part else str(whole)
