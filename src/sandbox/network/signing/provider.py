"""An Ethereum provider (JSON-RPC, EIP-1193): accounts and signatures come from the signer, the rest from the node.

ethers, viem and web3.py use it like a node that has the account unlocked.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from sandbox.errors import SandboxError
from sandbox.network.signing.filling import Node, filled
from sandbox.network.signing.quantities import BadParams, message, transaction
from sandbox.signing import strict_json

MOST_BATCHED = 100
# EIP-1193 and EIP-1474
REJECTED, UNAUTHORIZED, UNSUPPORTED = 4001, 4100, 4200
PARSE, INVALID, NO_METHOD, BAD_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
_PASSED = ("eth_", "net_", "web3_")


class ProviderError(Exception):
    """An error that is reported to the caller, with its code."""

    def __init__(self, code: int, text: str, data: Any = None) -> None:
        self.code = code
        self.data = data
        super().__init__(text)


class Signer(Protocol):
    """What a provider uses of the signer."""

    async def address(self) -> str: ...

    async def signed(self, id: str, kind: str, request: Any) -> dict[str, Any]:
        """The SigningResult, after a person's decision where one is needed."""


class ChainProvider:
    """One chain's provider. `node` passes a call on to the chain's node; None when it has no node."""

    def __init__(self, signer: Signer, chain: int, node: Node | None, broadcast: bool) -> None:
        self._signer = signer
        self._chain = chain
        self._node = node
        self._broadcast = broadcast

    async def answer(self, body: bytes) -> bytes:
        """The answer to a request or a batch of them."""
        try:
            asked = strict_json.loads(body, 2**20)
        except strict_json.NotJson as problem:
            return strict_json.dumps(_failed(None, ProviderError(PARSE, f"the body {problem}")))
        if not isinstance(asked, list):
            return strict_json.dumps(await self._one(asked))
        if not 0 < len(asked) <= MOST_BATCHED:
            return strict_json.dumps(_failed(None, ProviderError(INVALID, "an empty or too long batch")))
        return strict_json.dumps([await self._one(one) for one in asked])

    async def _one(self, asked: Any) -> dict[str, Any]:
        id = asked.get("id") if isinstance(asked, dict) else None
        if (
            not isinstance(asked, dict)
            or not isinstance(asked.get("method"), str)
            or not isinstance(id, int | str | None)
        ):
            return _failed(None, ProviderError(INVALID, "not a JSON-RPC request"))
        try:
            return {"jsonrpc": "2.0", "id": id, "result": await self._call(asked["method"], asked.get("params", []))}
        except ProviderError as problem:
            return _failed(id, problem)
        except BadParams as problem:
            return _failed(id, ProviderError(BAD_PARAMS, str(problem)))
        except SandboxError as problem:
            return _failed(id, ProviderError(INTERNAL, str(problem)))

    async def _call(self, method: str, params: Any) -> Any:
        own = _METHODS.get(method)
        if own is not None:
            if not isinstance(params, list):
                raise BadParams("the parameters must be a list")
            return await own(self, params)
        if method.startswith("eth_sign") or not method.startswith(_PASSED) or len(method) > 64:
            raise ProviderError(UNSUPPORTED, "the method is not supported here")
        return await self._ask_node(method, params)

    async def _ask_node(self, method: str, params: Any) -> Any:
        if self._node is None:
            raise ProviderError(UNSUPPORTED, f"signing.rpc has no node for chain {self._chain}")
        return await self._node(method, params)

    async def _accounts(self, params: list[Any]) -> list[str]:
        return [await self._signer.address()]

    async def _chain_id(self, params: list[Any]) -> str:
        return hex(self._chain)

    async def _version(self, params: list[Any]) -> str:
        return str(self._chain)

    async def _sign_transaction(self, params: list[Any]) -> str:
        if len(params) != 1:
            raise BadParams("takes one transaction")
        address = await self._signer.address()
        plain = await filled(transaction(params[0], address, self._chain), address, self._ask_node)
        return await self._signed("transaction", plain)

    async def _send_transaction(self, params: list[Any]) -> Any:
        if self._broadcast and self._node is None:
            raise ProviderError(
                UNSUPPORTED, f"signing.rpc has no node for chain {self._chain}; eth_signTransaction hands back"
            )
        raw = await self._sign_transaction(params)
        return await self._ask_node("eth_sendRawTransaction", [raw]) if self._broadcast else raw

    async def _personal_sign(self, params: list[Any]) -> str:
        return await self._signed("text", {"message": message(params, await self._signer.address())})

    async def _typed_data(self, params: list[Any]) -> str:
        if len(params) != 2 or str(params[0]).lower() != await self._signer.address():
            raise BadParams("takes the signer's address and the typed data")
        given = params[1]
        if isinstance(given, str):
            try:
                given = strict_json.loads(given)
            except strict_json.NotJson as problem:
                raise BadParams(f"the typed data {problem}") from None
        return await self._signed("typed", given)

    async def _signed(self, kind: str, request: Any) -> str:
        told = await self._signer.signed(f"rpc-{secrets.token_hex(16)}", kind, request)
        if told.get("success") is True:
            return str(told["signature"])
        decision = told.get("policyDecision", {})
        rule = decision.get("matchedRule")
        code = BAD_PARAMS if rule == "form" else REJECTED if rule == "person" else UNAUTHORIZED
        text = str(decision.get("reason") or told.get("error") or "it was not signed")
        raise ProviderError(code, text, {"rule": rule, "requestId": told.get("requestId"), "hash": told.get("hash")})


_METHODS: dict[str, Callable[[ChainProvider, list[Any]], Awaitable[Any]]] = {
    "eth_accounts": ChainProvider._accounts,
    "eth_requestAccounts": ChainProvider._accounts,
    "eth_chainId": ChainProvider._chain_id,
    "net_version": ChainProvider._version,
    "eth_signTransaction": ChainProvider._sign_transaction,
    "eth_sendTransaction": ChainProvider._send_transaction,
    "personal_sign": ChainProvider._personal_sign,
    "eth_signTypedData_v4": ChainProvider._typed_data,
}


def _failed(id: Any, problem: ProviderError) -> dict[str, Any]:
    error: dict[str, Any] = {"code": problem.code, "message": str(problem)}
    if problem.data is not None:
        error["data"] = problem.data
    return {"jsonrpc": "2.0", "id": id, "error": error}
