"""A thief with a token that may ask, over HTTP, against a real server and a real signer: no signature out of policy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serving import Served
from tests.signing.keys import ETHER, FRIEND, POLICY, transaction
from tests.signing.signers import RunningSigner

DEAR = str(ETHER // 20)
SIGN, APPROVE = "/api/sandbox/sign", "/api/sandbox/sign/approve"


class Pair:
    """A signer, and two servers that share it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.signer = RunningSigner(home, POLICY)  # ten an hour
        self.servers = [Served(home), Served(home)]
        self.thief = self.servers[0].new_token("sign", "read")
        self.askers = [one.client(self.thief) for one in self.servers]
        self.owners = [one.http for one in self.servers]

    def end(self) -> None:
        for one in self.servers:
            one.end()
        self.signer.end()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path / "s")
    yield made
    made.end()


def submit(client: httpx.Client, id: str, **changes: Any) -> httpx.Response:
    return client.post(SIGN, json={"requestId": id, **transaction(**changes)}, timeout=120)


def signatures(answers: list[httpx.Response]) -> set[str]:
    return {one.json()["signature"] for one in answers if one.json().get("signature")}


def test_two_servers_at_once_do_not_pass_a_limit_of_ten_nor_does_a_restart(pair: Pair) -> None:
    with ThreadPoolExecutor(20) as many:
        answers = list(many.map(lambda n: submit(pair.askers[n % 2], f"n{n}", nonce=n), range(60)))
    assert len(signatures(answers)) == 10
    pair.signer.process.kill()
    pair.signer.end()
    assert submit(pair.askers[0], "meanwhile", nonce=99).status_code == 409
    pair.signer = RunningSigner(pair.home, POLICY)
    words = [sys.executable, "-m", "sandbox.cli.main", "prune"]  # which has nothing to do with what was signed
    subprocess.run(words, env=pair.signer.environment, check=True, capture_output=True)
    assert not signatures([submit(pair.askers[n % 2], f"again{n}", nonce=n) for n in range(4)])
    assert not signatures([submit(pair.askers[0], f"n{n}", nonce=n) for n in range(4)])


def test_approvals_at_once_over_two_servers_sign_once_and_only_what_was_shown(pair: Pair) -> None:
    assert submit(pair.askers[0], "dear", value=DEAR).status_code == 202
    with ThreadPoolExecutor(24) as many:
        # Meanwhile the thief asks for something else by the same name, and tries to approve by itself.
        baits = many.map(lambda n: submit(pair.askers[n % 2], "dear", value=DEAR, nonce=n + 1), range(8))
        own = many.map(lambda n: pair.askers[n % 2].post(APPROVE, json={"requestId": "dear"}), range(8))
        given = many.map(lambda n: pair.owners[n % 2].post(APPROVE, json={"requestId": "dear"}), range(8))
        answers = list(given)
        assert all(one.status_code == 403 for one in baits)
        assert all(one.status_code == 403 for one in own)
    assert sorted(one.status_code for one in answers) == [200] + [404] * 7
    (signed,) = signatures([one for one in answers if one.status_code == 200])
    assert signatures([submit(pair.askers[1], "dear", value=DEAR)]) == {signed}


def test_another_token_gets_neither_the_signature_nor_the_name_of_a_request(pair: Pair) -> None:
    other = pair.servers[0].limited("sign", "read")
    assert submit(pair.askers[0], "mine", value=DEAR).status_code == 202
    assert submit(other, "mine", value=DEAR).status_code == 403
    assert pair.owners[0].post(APPROVE, json={"requestId": "mine"}).status_code == 200
    answer = submit(other, "mine", value=DEAR)
    assert (answer.status_code, answer.json()["signature"]) == (403, None)
    assert submit(pair.askers[0], "mine", value=DEAR).json()["signature"]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = Path(tmp_path_factory.mktemp("s"))
    signer = RunningSigner(home, {**POLICY, "max_per_hour": 1000, "max_per_day": 1000})
    served = Served(home)
    yield served
    served.end()
    signer.end()


@pytest.fixture(scope="module")
def thief(one: Served) -> httpx.Client:
    return one.limited("sign", "read")


NUMBERS = [
    *(
        '"1\\n"',
        '" 1"',
        '"+1"',
        '"-1"',
        '"01"',
        '"1_0"',
        '"1e1"',
        '"0x1"',
        '"1.0"',
        '"\\uff11"',
        '"\\u0661"',
        '""',
        "1",
    ),
    *("1", "1.5", "1e1", "true", "null", "[1]", '"' + "9" * 39 + '"', '"' + "9" * 5000 + '"', "-0", '"-0"', "NaN"),
]


@pytest.mark.parametrize("field", ["value", "gasLimit", "maxFeePerGas", "nonce", "chainId"])
def test_an_odd_number_is_never_signed(thief: httpx.Client, field: str) -> None:
    plain = transaction()
    plain.pop(field, None)
    for at, number in enumerate(NUMBERS):
        if (field in ("nonce", "chainId") and number == "1") or (field != "value" and number == "null"):
            continue  # an ordinary number, or a field that is left out
        body = json.dumps({"requestId": f"{field}{at}", **plain})[:-1] + f', "{field}": {number}}}'
        answer = thief.post(SIGN, content=body.encode(), headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 403), (number, answer.text)
        assert not answer.json().get("signature")


def ordinary(**more: Any) -> bytes:
    return json.dumps({"requestId": "odd", **transaction(), **more}).encode()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (ordinary()[:-1] + b', "\\u0074o": "' + FRIEND.encode() + b'"}', "application/json"),
        (b"\xef\xbb\xbf" + ordinary(), "application/json"),
        (ordinary().decode().encode("utf-16"), "application/json; charset=utf-16"),
        (ordinary() + ordinary(), "application/json"),
        (ordinary() + b"\0", "application/json"),
        (ordinary(credential={"token": "x"}), "application/json"),
        (ordinary(sandbox="vm-1", asker="sandbox:vm-1"), "application/json"),
        (b"requestId=odd&chainId=1337&value=1", "application/x-www-form-urlencoded"),
        (b"\x86\xa9requestId\xa3odd", "application/x-msgpack"),
    ],
)
def test_a_body_that_two_readers_might_read_differently_is_refused(thief: httpx.Client, body: bytes, kind: str) -> None:
    answer = thief.post(SIGN, content=body, headers={"Content-Type": kind})
    assert answer.status_code in (400, 413, 415), (answer.status_code, answer.text)


@pytest.mark.parametrize(
    "path",
    [
        *("/api/sandbox/sign/approve/", "/api/sandbox/sign/./approve", "/api/sandbox/x/../sign/approve"),
        *("/api/sandbox/sign/%61pprove", "/API/sandbox/sign/approve", "//api/sandbox/sign/approve"),
        *("/api/sandbox/sign/approve?verb=sign", "/api/sandbox/sign;x/approve", "/api/sandbox/sign/approve%00"),
    ],
)
def test_no_spelling_of_the_path_approves_for_who_asks(thief: httpx.Client, path: str) -> None:
    headers = {"X-HTTP-Method-Override": "POST", "X-Original-URL": APPROVE}
    submit(thief, "waits", value=DEAR)
    for method in ("POST", "GET", "PUT"):
        answer = thief.request(method, path, json={"requestId": "waits"}, headers=headers)
        assert answer.status_code in (400, 403, 404, 405), (answer.status_code, answer.text)
    assert [each["requestId"] for each in thief.get(f"{SIGN}/pending").json()["pending"]] == ["waits"]


def test_two_tokens_in_one_request_are_no_third(one: Served, thief: httpx.Client) -> None:
    submit(thief, "waits", value=DEAR)
    mine, theirs = thief.headers["authorization"], one.http.headers["authorization"].replace("Bearer ", "")
    given = [
        [("authorization", mine), ("authorization", "Bearer wrong")],
        [("authorization", f"{mine}, Bearer wrong")],
        [("authorization", mine), ("cookie", f"token={theirs[:8]}")],
        [("authorization", "Bearer"), ("x-token", "wrong")],
        [("authorization", f"Bearer {theirs[:-1]}")],
    ]
    with httpx.Client(base_url=one.address) as plain:
        for headers in given:
            answer = plain.post(APPROVE, json={"requestId": "waits"}, headers=headers)
            assert answer.status_code in (400, 401, 403), answer.text
