"""The signer as it runs: the gate's host, the command line, the process with the key."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from tests.signing.keys import ADDRESS, ETHER, FOE, FRIEND, POLICY, sender, transaction
from tests.signing.signers import RunningSigner

pytestmark = pytest.mark.walls
DEAR = str(ETHER // 20)


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSigner]:
    policy = {**POLICY, "max_per_hour": 1000, "max_per_day": 1000, "messages": {"text": "allow"}}
    running = RunningSigner(tmp_path_factory.mktemp("signer") / "h", policy)
    yield running
    running.end()


@pytest.fixture(autouse=True)
def _at_home(signer: RunningSigner, monkeypatch: pytest.MonkeyPatch, _home_of_its_own: None) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(signer.home))


@pytest.fixture(scope="module")
def box(signer: RunningSigner) -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SANDBOX_HOME", str(signer.home))
        made = Sandbox(
            {"signing": signer.policy, "filesystem": {"programs": [sys.executable]}, "network": {"preset": "open"}}
        )
    with made:
        yield made


ASK = """
import json, sys, urllib.error, urllib.request
asked = urllib.request.Request(sys.argv[1], sys.stdin.buffer.read() or None, {"Content-Type": "application/json"})
try:
    answer = urllib.request.urlopen(asked, timeout=60)
except urllib.error.HTTPError as problem:
    answer = problem
print(json.dumps([answer.status, answer.read().decode()]))
"""


def ask(box: Sandbox, path: str, body: Any = None) -> tuple[int, Any]:
    """What a program inside is answered."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    done = box.exec([sys.executable, "-I", "-c", ASK, f"http://signer.sandbox.internal{path}"], input=data, check=True)
    status, text = json.loads(done.stdout)
    return status, json.loads(text)


def rpc(box: Sandbox, method: str, *params: Any) -> dict[str, Any]:
    found: dict[str, Any] = ask(box, "/", {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)})[1]
    return found


def test_a_program_inside_gets_a_signature_within_the_policy(box: Sandbox) -> None:
    assert ask(box, "/address")[1]["address"] == ADDRESS
    status, told = ask(box, "/sign", {"requestId": "a1", "createdAt": 1, **transaction()})
    assert (status, sender(told["signature"])) == (200, ADDRESS)
    assert told["policyDecision"] == {
        "allowed": True, "reason": "within the policy", "requiresHumanConfirmation": False, "matchedRule": "policy"
    }  # fmt: skip
    assert told["humanConfirmed"] is False
    assert ask(box, "/sign", {"requestId": "a1", **transaction()})[0] == 403
    status, told = ask(box, "/sign", {"requestId": "a2", **transaction(to=FOE)})
    assert (status, told["policyDecision"]["matchedRule"], "signature" in told) == (403, "denied", False)


def test_what_waits_is_approved_at_the_hosts_command_line(box: Sandbox, signer: RunningSigner) -> None:
    status, told = ask(box, "/sign", {"requestId": "dear", **transaction(value=DEAR)})
    assert (status, told["pending"], "signature" in told) == (202, True, False)
    (waiting,) = json.loads(signer.cli("pending", "--json").stdout)
    assert (waiting["requestId"], waiting["sandbox"], waiting["hash"]) == ("dear", box.id, told["hash"])
    assert waiting["shown"]["ether"] == "0.05"
    assert signer.cli("approve", "dear", "--hash", "0x" + "0" * 64).returncode != 0
    unseen = signer.cli("approve", "dear")  # without a terminal nobody could look at it
    assert unseen.returncode != 0 and "--hash" in unseen.stderr
    assert [one["requestId"] for one in json.loads(signer.cli("pending", "--json").stdout)] == ["dear"]
    assert signer.cli("approve", "dear", "--hash", told["hash"]).returncode == 0
    status, told = ask(box, "/sign/dear")
    assert (status, told["humanConfirmed"], sender(told["signature"])) == (200, True, ADDRESS)
    ask(box, "/sign", {"requestId": "dear2", **transaction(value=DEAR)})
    assert signer.cli("reject", "dear2").returncode == 0
    assert ask(box, "/sign/dear2")[0] == 403


def test_a_provider_waits_while_a_person_decides(box: Sandbox, signer: RunningSigner) -> None:
    asked = {"from": ADDRESS, "to": FRIEND, "value": hex(int(DEAR)), "nonce": "0x1", "gas": "0x5208",
             "maxFeePerGas": "0x1", "maxPriorityFeePerGas": "0x1"}  # fmt: skip
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(rpc(box, "eth_signTransaction", asked)))
    thread.start()
    waiting: list[Any] = []
    while thread.is_alive() and not waiting:
        waiting = [one for one in json.loads(signer.cli("pending", "--json").stdout) if one["requestId"][:3] == "rpc"]
    assert signer.cli("approve", waiting[0]["requestId"], "--yes").returncode == 0
    thread.join(timeout=60)
    assert sender(answers[0]["result"]) == ADDRESS


def test_the_provider_knows_its_account_and_chain(box: Sandbox) -> None:
    assert rpc(box, "eth_accounts")["result"] == [ADDRESS]
    assert rpc(box, "eth_chainId")["result"] == "0x539"
    assert rpc(box, "net_version")["result"] == "1337"
    assert len(rpc(box, "personal_sign", "0x6869", ADDRESS)["result"]) == 132
    assert box.exec(["sh", "-c", "echo $ETH_RPC_URL"]).stdout.strip() == "http://signer.sandbox.internal"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("eth_sign", [ADDRESS, "0x" + "00" * 32]),
        ("eth_signTypedData", [ADDRESS, {}]),
        ("eth_signTypedData_v3", [ADDRESS, "{}"]),
        ("personal_importRawKey", ["0x00", ""]),
        ("personal_unlockAccount", [ADDRESS, ""]),
        ("admin_addPeer", []),
        ("wallet_addEthereumChain", []),
        ("approve", ["dear"]),
        ("eth_signTransaction", [{"to": FRIEND, "from": FRIEND}]),
        ("eth_signTransaction", [{"to": FRIEND, "type": "0x3"}]),
        ("eth_signTransaction", [{"to": FRIEND, "type": "0x4", "authorizationList": []}]),
        ("eth_signTransaction", [{"to": FRIEND, "type": "0x1", "accessList": [], "gasPrice": "0x1"}]),
        ("eth_signTransaction", [{"to": FRIEND, "accessList": [{"address": FOE, "storageKeys": []}]}]),
        ("eth_signTransaction", [{"to": FRIEND, "data": "0x", "input": "0x00"}]),
        ("eth_signTransaction", [{"to": FRIEND, "value": "0x01"}]),
        ("eth_signTransaction", [{"to": FRIEND, "value": "1"}]),
        ("eth_signTransaction", [{"to": FRIEND, "value": 1}]),
        ("eth_signTransaction", [{"to": FRIEND, "value": "-0x1"}]),
        ("eth_signTransaction", [{"to": FRIEND, "chainId": "0x1"}]),
        ("eth_signTransaction", [{"to": FRIEND, "chainId": "0x0"}]),
        ("eth_signTransaction", [{"nonce": "0x0", "gas": "0x5208", "gasPrice": "0x1", "data": "0x6000"}]),
        ("eth_signTransaction", [{"to": FRIEND}, {"to": FOE}]),
        ("eth_signTransaction", {"to": FRIEND}),
        ("personal_sign", ["hi", FRIEND]),
        ("eth_signTypedData_v4", [ADDRESS, '{"a":1,"a":2}']),
    ],
)
def test_a_provider_refuses_other_methods_and_odd_parameters(box: Sandbox, method: str, params: Any) -> None:
    told = ask(box, "/", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})[1]
    assert "error" in told
    assert "result" not in told


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"eth_accounts","method":"eth_sendTransaction","params":[]}',
        b'{"requestId":"x","requestId":"y"}',
        b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 5000, b'{"id":1e5,"method":"eth_accounts"}', b'{"id":NaN}',
        b"[" + b",".join([b'{"id":1,"method":"eth_accounts"}'] * 101) + b"]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/sign"])
def test_a_body_that_could_mean_two_things_is_refused(box: Sandbox, path: str, body: bytes) -> None:
    status, told = ask(box, path, body)
    assert status != 200 or "error" in told


def test_a_huge_body_is_refused(box: Sandbox) -> None:
    code = (
        "import http.client\nc=http.client.HTTPConnection('signer.sandbox.internal')\n"
        "try:\n c.request('POST','/',b'x'*(2<<20)); print(c.getresponse().status)\nexcept OSError: print(403)"
    )
    assert box.exec([sys.executable, "-I", "-c", code]).stdout.strip() == "403"


@pytest.mark.parametrize(
    "path", ["/approve", "/sign/approve", "/api/sandbox/sign/approve", "/pending", "/1", "//", "/?"]
)
def test_there_is_no_way_to_approve_from_inside(box: Sandbox, path: str) -> None:
    assert ask(box, path, {"requestId": "dear"})[0] == 404


def test_the_signers_sockets_and_files_are_out_of_sight(box: Sandbox, signer: RunningSigner) -> None:
    for name in ("signing/ask", "signing/approve", "signing/approver", "signing/ledger.db", "key.json"):
        assert (signer.home / name).exists()
        assert box.exec(["test", "-e", str(signer.home / name)]).exit_code == 1


def test_a_sandbox_without_signing_has_no_such_host(signer: RunningSigner) -> None:
    with Sandbox({"network": {"preset": "open"}}) as other:
        done = other.exec(["curl", "-sS", "-m", "20", "http://signer.sandbox.internal/address"])
        assert "signing.enabled" in done.stdout
        assert ADDRESS not in done.stdout


def test_nobody_asks_in_the_name_of_another_process_sandbox(box: Sandbox, signer: RunningSigner) -> None:
    """What a gate that was taken over would try."""
    from sandbox.errors import Denied
    from sandbox.signing import client

    message = {"op": "submit", "id": "z", "kind": "transaction", "request": transaction(), "sandbox": box.id}
    code = "import json,sys; from sandbox.signing import client; print(client.ask(json.loads(sys.argv[1])))"
    import subprocess

    words = [sys.executable, "-c", code, json.dumps({**message, "asker": f"sandbox:{box.id}"})]
    done = subprocess.run(words, env=signer.environment, capture_output=True, text=True, check=False)
    assert "belongs to another process" in done.stderr
    for asker in ("owner", "", "sandbox:", "sandbox:vm-00000000", "token:", "token:1"):
        with pytest.raises(Denied):
            client.ask({**message, "asker": asker})


@pytest.mark.parametrize(
    "credential", [None, {}, {"secret": ""}, {"secret": "0" * 64}, {"token": "sbx_x"}, {"secret": None}]
)
def test_deciding_needs_a_credential(box: Sandbox, signer: RunningSigner, credential: Any) -> None:
    from sandbox.errors import Denied, SandboxError
    from sandbox.signing import client

    ask(box, "/sign", {"requestId": "held", **transaction(value=DEAR)})
    with pytest.raises(Denied):
        client.decide({"op": "approve", "id": "held", "credential": credential})
    with pytest.raises(SandboxError):
        client.ask({"op": "approve", "id": "held", "asker": f"sandbox:{box.id}", "credential": client.owner()})


def test_the_process_with_the_key_reaches_nothing(signer: RunningSigner) -> None:
    """The same walls, with another program in them."""
    import tempfile

    from sandbox.signer.walled_key import settings

    with tempfile.TemporaryDirectory() as room, Sandbox(settings(room)) as walled:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
            assert walled.exec([sys.executable, "-I", "-c", code]).exit_code != 0
        assert "Forbidden" in walled.exec(["curl", "-sSi", "-m", "20", "http://example.com/"]).stdout
        assert walled.exec(["cat", str(signer.home / "key.json")]).exit_code != 0
        assert walled.exec(["sh", "-c", f"echo x > {room}/x"]).exit_code != 0
        assert walled.exec([sys.executable, "-I", "-c", "import eth_account"], check=True)


def test_a_wrong_password_is_an_error_that_does_not_repeat_it(tmp_path: Path) -> None:
    failed = RunningSigner(tmp_path / "h", password="wrong-guess-42")
    assert failed.process.returncode != 0
    assert "wrong password" in failed.error
    assert "wrong-guess-42" not in failed.error


def test_the_password_and_the_key_are_in_no_argument_and_no_environment(signer: RunningSigner) -> None:
    from tests.signing.keys import KEY
    from tests.signing.signers import PASSWORD

    found = b""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ"):
            try:
                found += Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:
                continue
    assert PASSWORD.encode() not in found
    assert KEY.hex().encode() not in found


def test_the_kill_switch_stops_signatures(tmp_path: Path) -> None:
    from sandbox.signing.service import SigningService
    from tests.signing.keys import Bench

    bench = Bench(tmp_path)
    stopped = SigningService(
        bench.service.rules, bench.ledger, bench.key, bench.service._record, lambda: "the kill switch is pulled"
    )
    result = stopped.submit("k", "transaction", transaction(), asker="sandbox:a", sandbox="a")
    assert (result.signature, result.decision.rule) == (None, "kill-switch")


def test_a_second_signer_of_one_home_is_refused(signer: RunningSigner) -> None:
    done = signer.cli("serve", "--password-fd", "0")
    assert done.returncode != 0
    assert "another signer runs" in done.stderr


def test_nobody_attaches_to_the_sandbox_of_the_key(signer: RunningSigner) -> None:
    """A token with `exec` would otherwise run commands beside the key."""
    from sandbox.errors import SandboxError
    from sandbox.registry.registry import entries

    (own,) = [one for one in entries(str(signer.home)) if one.command == ["signer"]]
    assert own.running
    with pytest.raises(SandboxError):
        Sandbox.attach(own.id)


NEIGHBOUR = """
import sys
sys.path.insert(0, sys.argv[1])
from sandbox.signing.key_process import hold_memory
hold_memory()
print(1, flush=True)
sys.stdin.read()
"""


def test_the_memory_of_the_key_is_closed_to_a_neighbour() -> None:
    """Were there one, all the same."""
    import tempfile

    from sandbox.signer.walled_key import _OWN, settings

    words = [sys.executable, "-I", "-c", NEIGHBOUR, os.path.dirname(_OWN)]
    with tempfile.TemporaryDirectory() as room, Sandbox(settings(room)) as walled, walled.spawn(words) as process:
        assert process.read() == b"1\n"
        look = f"cat /proc/{process.pid}/mem /proc/{process.pid}/environ /proc/{process.pid}/fd/0"
        done = walled.exec(["sh", "-c", look])
        assert done.stdout == ""
        assert done.stderr.count("denied") == 3


RAW = """
import json, socket, sys
with socket.create_connection(("signer.sandbox.internal", 80), 20) as line:
    line.sendall(sys.stdin.buffer.read())
    print(line.recv(65536).decode())
"""


@pytest.mark.parametrize(
    "head",
    [
        "Host: signer.sandbox.internal\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
        "Host: signer.sandbox.internal\r\nContent-Length: 1\r\nContent-Length: 2",
        "Host: evil.example\r\nContent-Length: 62",
        "Host: signer.sandbox.internal\r\nHost: evil.example\r\nContent-Length: 62",
    ],
)
def test_a_request_that_could_be_read_in_two_ways_is_refused(box: Sandbox, head: str) -> None:
    body = '{"jsonrpc":"2.0","id":1,"method":"eth_accounts","params":[]}  '
    asked = f"POST / HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n{body}"
    done = box.exec([sys.executable, "-I", "-c", RAW], input=asked, check=True)
    assert done.stdout.startswith("HTTP/1.1 4")
    assert ADDRESS not in done.stdout


HELD = r"""
import select, socket
HEAD = b"POST / HTTP/1.1\r\nHost: signer.sandbox.internal\r\nContent-Length: 1048576\r\n\r\n"
def begun():
    line = socket.create_connection(("signer.sandbox.internal", 80), 60)
    try:
        line.sendall(HEAD + b" " * 1048000)
    except OSError:
        pass  # refused already
    return line
lines, refused = [begun() for _ in range(40)], 0
while refused < 32 and (ready := select.select(lines, [], [], 60)[0]):
    refused += len(ready)
    lines = [one for one in lines if one not in ready]
print(refused)
"""


def test_requests_that_never_end_keep_little_of_the_owners_memory(box: Sandbox) -> None:
    done = box.exec([sys.executable, "-I", "-c", HELD], check=True)
    assert int(done.stdout) >= 32  # of 40 with a megabyte each
    assert ask(box, "/address")[1]["address"] == ADDRESS  # those have ended, and do not count any more


FLOOD = """
import http.client, json, sys, threading
asked, told = json.loads(sys.argv[1]), []
def ask(at):
    line = http.client.HTTPConnection("signer.sandbox.internal", timeout=60)
    line.request("POST", "/sign", json.dumps({"requestId": f"flood-{at}", **asked, "nonce": at}))
    told.append(json.loads(line.getresponse().read())["success"])
threads = [threading.Thread(target=ask, args=(at,)) for at in range(100)]
for one in threads: one.start()
for one in threads: one.join()
print(len(told), sum(told))
"""


def test_a_hundred_at_once_from_inside_do_not_pass_a_limit_of_ten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = RunningSigner(tmp_path / "h")
    monkeypatch.setenv("SANDBOX_HOME", str(running.home))
    config = {"signing": running.policy, "filesystem": {"programs": [sys.executable]}}
    try:
        with Sandbox(config) as other:
            done = other.exec([sys.executable, "-I", "-c", FLOOD, json.dumps(transaction())])
    finally:
        running.end()
    assert (done.stdout, done.stderr) == ("100 10\n", "")
