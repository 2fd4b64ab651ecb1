"""A node for tests: py-evm's chain behind JSON-RPC on the loopback. Run by the Python of `.signing/`.

Prints its port. The account in argv gets ether. Signs nothing: it has no key of that account.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from eth_tester import EthereumTester, PyEVMBackend  # type: ignore[import-untyped,import-not-found,unused-ignore]
from web3 import EthereumTesterProvider, Web3

ETHER = 10**18


def plain(value: Any) -> Any:
    """As a node spells it."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return hex(value)
    if isinstance(value, dict) or hasattr(value, "items"):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value]


class Node(BaseHTTPRequestHandler):
    web3: Web3
    seen: list[str] = []

    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            answer: dict[str, Any] = {"result": self.answer(call["method"], call.get("params", []))}
        except Exception as problem:  # noqa: BLE001 - told to the caller, as a node does
            answer = {"error": {"code": -32000, "message": str(problem)}}
        body = json.dumps({"jsonrpc": "2.0", "id": call.get("id"), **answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, method: str, params: list[Any]) -> Any:
        eth: Any = self.web3.eth
        match method:
            case "eth_sendRawTransaction":
                return plain(bytes(eth.send_raw_transaction(params[0])))
            case "eth_getTransactionCount":
                return hex(eth.get_transaction_count(Web3.to_checksum_address(params[0])))
            case "eth_getBalance":
                return hex(eth.get_balance(Web3.to_checksum_address(params[0])))
            case "eth_blockNumber":
                return hex(eth.block_number)
            case "eth_maxPriorityFeePerGas":
                return hex(10**9)
            case "eth_gasPrice":
                return hex(2 * 10**9)
            case "eth_estimateGas":
                return hex(21000)
            case "eth_getBlockByNumber" | "eth_getBlockByHash":
                return plain(dict(eth.get_block(params[0])))
            case "eth_getTransactionReceipt":
                return plain(dict(eth.get_transaction_receipt(params[0])))
            case "eth_getTransactionByHash":
                return plain(dict(eth.get_transaction(params[0])))
        raise ValueError(f"the method {method} does not exist")

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    Node.web3 = Web3(EthereumTesterProvider(EthereumTester(PyEVMBackend())))
    rich = Node.web3.eth.accounts[0]
    to = Web3.to_checksum_address(sys.argv[1])
    Node.web3.eth.send_transaction({"from": rich, "to": to, "value": 10 * ETHER})  # type: ignore[typeddict-item,unused-ignore]
    server = HTTPServer(("127.0.0.1", 0), Node)
    print(server.server_port, Node.web3.eth.chain_id, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
