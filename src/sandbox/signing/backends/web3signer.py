"""A remote signer that speaks Web3Signer's JSON-RPC."""

from __future__ import annotations

import urllib.request
from typing import Any

from sandbox.policy.signing.requests import TextMessage, UnsignedTransaction
from sandbox.policy.signing.typed_data import TypedData
from sandbox.signing import strict_json
from sandbox.signing.backends.base import Order, SigningFailed
from sandbox.signing.backends.command import checked

PATIENCE = 30.0
_LONGEST = 256 * 1024


class Web3Signer:
    """A SignerBackend. The answers are checked, like a command's output."""

    def __init__(self, url: str, address: str | None = None) -> None:
        self._url = url
        # No redirects: another server would answer.
        self._opener = urllib.request.build_opener(_Stay, urllib.request.ProxyHandler({}))
        self._address = address.lower() if address is not None else self._only()

    def _only(self) -> str:
        found = self._call("eth_accounts", [])
        if not isinstance(found, list) or len(found) != 1:
            raise SigningFailed("the remote signer has several accounts, or none; write signing.address")
        return str(found[0]).lower()

    def get_address(self) -> str:
        return self._address

    def sign_transaction(self, order: Order) -> str:
        request = order.request
        assert isinstance(request, UnsignedTransaction)
        fees = {"gasPrice": hex(request.max_fee)}
        if request.priority_fee is not None:
            fees = {"maxFeePerGas": hex(request.max_fee), "maxPriorityFeePerGas": hex(request.priority_fee)}
        asked = {
            "from": self._address,
            "to": request.to,
            "value": hex(request.value),
            "data": f"0x{request.data.hex()}",
            "nonce": hex(request.nonce),
            "gas": hex(request.gas),
            "chainId": hex(request.chain),
            **fees,
        }
        return checked(str(self._call("eth_signTransaction", [asked])), order, self._address)

    def sign_message(self, order: Order) -> str:
        request = order.request
        if isinstance(request, TypedData):
            found = self._call("eth_signTypedData", [self._address, request.plain()])
        else:
            assert isinstance(request, TextMessage)
            found = self._call("eth_sign", [self._address, f"0x{request.message.hex()}"])
        return checked(str(found), order, self._address)

    def _call(self, method: str, params: list[Any]) -> Any:
        body = strict_json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        asked = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        try:
            with self._opener.open(asked, timeout=PATIENCE) as answer:
                told = strict_json.loads(answer.read(_LONGEST + 1), _LONGEST)
            return told["result"]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise SigningFailed("the remote signer did not answer: {problem}", problem=type(problem).__name__) from None

    def close(self) -> None:
        pass


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
