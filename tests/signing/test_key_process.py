"""The process with the key believes nobody: not even the process that decides."""

from __future__ import annotations

import io
from typing import Any

import pytest

from sandbox.config.signing_section import Signing
from sandbox.policy.signing.requests import read_request
from sandbox.signing.backends.base import Order, SigningFailed
from sandbox.signing.backends.capability import hash_of, sealed
from sandbox.signing.calls import keccak, rules_of
from sandbox.signing.key_process import Holder, NotSigned
from tests.signing.keys import ADDRESS, ETHER, FOE, KEY, POLICY, sender, transaction

SECRET = bytes(32)


def order(confirmed: bool = False, **changes: Any) -> dict[str, Any]:
    plain = read_request("transaction", transaction(**changes), keccak).plain()
    return {
        "id": "x",
        "kind": "transaction",
        "request": plain,
        "hash": hash_of("transaction", plain),
        "confirmed": confirmed,
    }


@pytest.fixture
def holder() -> Holder:
    return Holder(KEY, SECRET, rules_of(Signing.read(POLICY)))


def test_an_order_is_carried_out_once(holder: Holder) -> None:
    line = sealed(SECRET, 1, order())
    assert sender(holder.sign(line)) == ADDRESS
    with pytest.raises(NotSigned):
        holder.sign(line)


@pytest.mark.parametrize(
    "line",
    [
        sealed(bytes(31) + b"\x01", 1, order()),
        sealed(SECRET, 0, order()),
        sealed(SECRET, 2, order()),
        sealed(SECRET, 1, order()).replace(b'"1000"', b'"9000"'),
        sealed(SECRET, 1, {**order(), "hash": "0x00"}),
        sealed(SECRET, 1, order(to=FOE)),
        sealed(SECRET, 1, order(chainId=1)),
        sealed(SECRET, 1, order(value=str(ETHER), confirmed=True)),
        sealed(SECRET, 1, order(value=str(ETHER // 20))),
        sealed(SECRET, 1, {**order(value=str(ETHER // 20)), "confirmed": "yes"}),
        b"{}\n", b"[]\n", b"\n", b"\xff\n",
    ],
)  # fmt: skip
def test_an_order_without_a_decision_for_exactly_that_is_refused(holder: Holder, line: bytes) -> None:
    with pytest.raises(NotSigned):
        holder.sign(line)


def test_what_a_person_approved_is_signed(holder: Holder) -> None:
    assert holder.sign(sealed(SECRET, 1, order(value=str(ETHER // 20), confirmed=True)))


def test_a_command_that_signs_something_else_is_not_believed(tmp_path: Any) -> None:
    import sys

    from sandbox.signing.backends.command import CommandSigner
    from sandbox.signing.backends.ethereum import sign

    asked = read_request("transaction", transaction(), keccak)
    for other, fine in ((transaction(), True), (transaction(to=FOE), False), (transaction(value="1001"), False)):
        raw = sign(KEY, read_request("transaction", other, keccak))
        backend = CommandSigner([sys.executable, "-c", f"print('{raw}')"], ADDRESS)
        given = Order("x", asked, hash_of("transaction", asked.plain()), False)
        if fine:
            assert backend.sign_transaction(given) == raw
        else:
            with pytest.raises(SigningFailed):
                backend.sign_transaction(given)


def test_a_remote_signer_is_asked_in_web3signers_words_and_not_believed_either() -> None:
    import json
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    from sandbox.signing.backends.ethereum import sign
    from sandbox.signing.backends.web3signer import Web3Signer

    asked = read_request("transaction", transaction(), keccak)
    answers = {"eth_accounts": [ADDRESS], "eth_signTransaction": sign(KEY, asked)}
    seen: list[Any] = []

    class Remote(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(call)
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": answers[call["method"]]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Remote) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        backend = Web3Signer(f"http://127.0.0.1:{server.server_port}")
        given = Order("x", asked, "", False)
        assert sender(backend.sign_transaction(given)) == backend.get_address() == ADDRESS
        assert seen[1]["params"][0]["value"] == "0x3e8"
        answers["eth_signTransaction"] = sign(KEY, read_request("transaction", transaction(to=FOE), keccak))
        with pytest.raises(SigningFailed):
            backend.sign_transaction(given)
        server.shutdown()


def test_a_key_process_that_ended_is_an_error() -> None:
    from sandbox.signing.backends.key_pipe import KeyPipe

    with pytest.raises(SigningFailed):
        KeyPipe(io.BytesIO(), io.BytesIO(b""), Signing.read(POLICY), {}, lambda: None)


def test_a_request_that_is_too_long_for_the_process_with_the_key_leaves_the_next_one_alone(holder: Holder) -> None:
    from sandbox.signing import strict_json
    from sandbox.signing.backends.key_pipe import KeyPipe

    class ToHolder(io.BytesIO):
        def write(self, line: Any) -> int:
            if b'"order"' in line:
                try:
                    told = {"signature": holder.sign(line)}
                except NotSigned as problem:
                    told = {"error": str(problem)}
                answers.append(strict_json.dumps(told) + b"\n")
            return len(line)

    class FromHolder(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            return answers.pop(0)

    answers = [strict_json.dumps({"address": ADDRESS}) + b"\n"]
    pipe = KeyPipe(ToHolder(), FromHolder(), Signing.read(POLICY), {}, lambda: None)
    holder._secret = pipe._secret
    asked = read_request("transaction", transaction(), keccak)
    hash = hash_of("transaction", asked.plain())
    with pytest.raises(SigningFailed):
        pipe.sign_transaction(Order("x" * strict_json.LONGEST, asked, hash, False))
    assert sender(pipe.sign_transaction(Order("y", asked, hash, False))) == ADDRESS


def test_modules_in_the_directory_where_the_signer_starts_never_see_the_password(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json
    import os

    from sandbox.signer import walled_key

    for name in ("json", "getpass", "os", "sandbox", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'seen')!r}, 'w')\n")
    (tmp_path / "key.json").write_text('{"version": 3}')
    monkeypatch.chdir(tmp_path)
    password, given = os.pipe()
    read, write = os.pipe()
    try:
        os.write(given, b"open sesame\n")
        walled_key._hand_over("key.json", password, write)
        assert json.loads(os.read(read, 2**16)) == {"keystore": {"version": 3}, "password": "open sesame"}
    finally:
        for fd in (password, given, read, write):
            os.close(fd)
    assert not (tmp_path / "seen").exists()
