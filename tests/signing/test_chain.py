"""Transactions that arrive: a real chain, and the libraries that people use, unchanged, inside a sandbox."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from tests.signing.keys import ADDRESS, ETHER, FRIEND, POLICY
from tests.signing.signers import RunningSigner

pytestmark = pytest.mark.signing
ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".signing"


class Chain:
    """The node, and a look at it from outside."""

    def __init__(self) -> None:
        words = [str(INSTALLED / "python/bin/python"), str(Path(__file__).parent / "node.py"), ADDRESS]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port, self.chain = map(int, self.process.stdout.readline().split())

    def call(self, method: str, *params: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}", body) as answer:
            return json.loads(answer.read())["result"]

    def balance(self, address: str) -> int:
        return int(self.call("eth_getBalance", address), 16)


@pytest.fixture(scope="module")
def chain() -> Iterator[Chain]:
    started = Chain()
    yield started
    started.process.kill()
    started.process.communicate()


@pytest.fixture(scope="module")
def signer(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSigner]:
    policy = {**POLICY, "chains": [chain.chain], "rpc": {str(chain.chain): f"http://rpc.test:{chain.port}"}}
    running = RunningSigner(tmp_path_factory.mktemp("signer") / "h", policy)
    assert running.said
    yield running
    running.end()


@pytest.fixture
def box(
    signer: RunningSigner, chain: Chain, monkeypatch: pytest.MonkeyPatch, _home_of_its_own: None, tmp_path: Path
) -> Iterator[Sandbox]:
    monkeypatch.setenv("SANDBOX_HOME", str(signer.home))
    config = {
        "signing": signer.policy,
        "network": {"allowed_hosts": [f"rpc.test:{chain.port}"], "block_private_ips": False},
        "filesystem": {
            "root": str(tmp_path),
            "allow_read": [str(INSTALLED)],
            "programs": [str(INSTALLED / "python/bin/python")],
        },
    }
    with Sandbox(config, resolve=lambda host, port: ["127.0.0.1"]) as made:
        yield made


ETHERS = f"""
const {{ ethers }} = require("ethers");
(async () => {{
  const provider = new ethers.JsonRpcProvider("http://signer.sandbox.internal");
  const signer = await provider.getSigner();
  const sent = await signer.sendTransaction({{ to: "{FRIEND}", value: 1234n }});
  const receipt = await sent.wait();
  console.log(JSON.stringify([signer.address.toLowerCase(), receipt.status]));
  provider.destroy();
}})().catch((problem) => {{ console.error(problem); process.exit(1); }});
"""

VIEM = f"""
const {{ createWalletClient, createPublicClient, http, defineChain }} = require("viem");
(async () => {{
  const transport = http("http://signer.sandbox.internal");
  const reads = createPublicClient({{ transport }});
  const ether = {{ name: "E", symbol: "E", decimals: 18 }};
  const chain = defineChain({{ id: await reads.getChainId(), name: "test", nativeCurrency: ether,
    rpcUrls: {{ default: {{ http: ["http://signer.sandbox.internal"] }} }} }});
  const wallet = createWalletClient({{ transport, chain }});
  const [account] = await wallet.getAddresses();
  const hash = await wallet.sendTransaction({{ account, to: "{FRIEND}", value: 77n }});
  const receipt = await reads.waitForTransactionReceipt({{ hash, pollingInterval: 100 }});
  console.log(JSON.stringify([account.toLowerCase(), receipt.status === "success" ? 1 : 0]));
}})().catch((problem) => {{ console.error(problem); process.exit(1); }});
"""

WEB3 = f"""
import json
from web3 import Web3
web3 = Web3(Web3.HTTPProvider("http://signer.sandbox.internal"))
account = web3.eth.accounts[0]
sent = web3.eth.send_transaction({{"from": account, "to": Web3.to_checksum_address("{FRIEND}"), "value": 55}})
print(json.dumps([account.lower(), web3.eth.wait_for_transaction_receipt(sent)["status"]]))
"""


@pytest.mark.parametrize(("program", "value"), [(ETHERS, 1234), (VIEM, 77)], ids=["ethers", "viem"])
def test_a_transaction_that_javascript_sends_arrives(box: Sandbox, chain: Chain, program: str, value: int) -> None:
    before = chain.balance(FRIEND)
    env = {"NODE_PATH": str(INSTALLED / "node_modules")}
    done = box.exec(["node", "-e", program], env=env, timeout=120)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == [ADDRESS, 1]
    assert chain.balance(FRIEND) == before + value


def test_a_transaction_that_web3_py_sends_arrives(box: Sandbox, chain: Chain) -> None:
    before = chain.balance(FRIEND)
    done = box.exec([str(INSTALLED / "python/bin/python"), "-c", WEB3], timeout=120)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == [ADDRESS, 1]
    assert chain.balance(FRIEND) == before + 55


def test_what_the_policy_refuses_never_reaches_the_chain(box: Sandbox, chain: Chain) -> None:
    stranger = "0x" + "77" * 20
    program = WEB3.replace(FRIEND, stranger)
    done = box.exec([str(INSTALLED / "python/bin/python"), "-c", program], timeout=120)
    assert done.exit_code != 0
    assert "signing.allowed_addresses" in done.stderr
    assert chain.balance(stranger) == 0


def test_reads_go_by_the_sandboxes_own_network_rules(
    signer: RunningSigner, chain: Chain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(signer.home))
    config = {"signing": signer.policy, "filesystem": {"root": str(tmp_path)}}
    with Sandbox(config, resolve=lambda host, port: ["127.0.0.1"]) as closed:
        body = '{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}'
        done = closed.exec(["curl", "-sS", "-m", "20", "-d", body, "http://signer.sandbox.internal/"])
    assert "network.allowed_hosts" in done.stdout
    assert "result" not in json.loads(done.stdout)


def test_what_a_person_approves_arrives(box: Sandbox, signer: RunningSigner, chain: Chain) -> None:
    import threading

    before = chain.balance(FRIEND)
    program = WEB3.replace('"value": 55', f'"value": {ETHER // 20}').replace(
        'internal")', 'internal", request_kwargs={"timeout": 120})'
    )
    results: list[Any] = []
    words = [str(INSTALLED / "python/bin/python"), "-c", program]
    thread = threading.Thread(target=lambda: results.append(box.exec(words, timeout=120)))
    thread.start()
    waiting: list[Any] = []
    while thread.is_alive() and not waiting:
        waiting = json.loads(signer.cli("pending", "--json").stdout)
    assert signer.cli("approve", waiting[0]["requestId"], "--yes").returncode == 0
    thread.join(120)
    assert results[0].exit_code == 0, results[0].stderr
    assert chain.balance(FRIEND) == before + ETHER // 20
