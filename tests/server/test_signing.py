"""The specification's signing paths, against a real server and a real signer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.server.browser import chromium, dashboard
from tests.server.serving import Served
from tests.signing.keys import ADDRESS, CHAIN, ETHER, FOE, POLICY, sender, transaction
from tests.signing.signers import RunningSigner

if TYPE_CHECKING:
    from playwright.sync_api import Dialog

DEAR = str(ETHER // 20)


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSigner]:
    running = RunningSigner(Path(tmp_path_factory.mktemp("s")), {**POLICY, "max_per_hour": 1000, "max_per_day": 1000})
    yield running
    running.end()


@pytest.fixture(scope="module")
def served(signer: RunningSigner) -> Iterator[Served]:
    server = Served(signer.home)
    yield server
    server.end()


@pytest.fixture(scope="module")
def agent(served: Served) -> httpx.Client:
    return served.limited("sign", "read")


def submit(client: httpx.Client, id: str, **changes: Any) -> httpx.Response:
    return client.post(
        "/api/sandbox/sign", json={"requestId": id, "createdAt": 1700000000000, **transaction(**changes)}
    )


def test_a_transaction_within_the_policy_is_signed(agent: httpx.Client) -> None:
    assert agent.get("/api/sandbox/sign/address").json() == {"address": ADDRESS, "chains": [CHAIN]}
    answer = submit(agent, "h1")
    assert answer.status_code == 200
    assert sender(answer.json()["signature"]) == ADDRESS
    assert submit(agent, "h1").status_code == 403
    refused = submit(agent, "h2", to=FOE)
    assert (refused.status_code, refused.json()["policyDecision"]["matchedRule"]) == (403, "denied")
    assert refused.json()["signature"] is None


def test_approving_needs_another_credential_than_asking(served: Served, agent: httpx.Client) -> None:
    assert submit(agent, "dear", value=DEAR).status_code == 202
    (waiting,) = agent.get("/api/sandbox/sign/pending").json()["pending"]
    assert {"requestId", "request", "decision", "createdAt", "expiresAt"} <= set(waiting)
    assert agent.post("/api/sandbox/sign/approve", json={"requestId": "dear"}).status_code == 403
    assert submit(served.http, "owner").status_code == 403  # and who approves does not ask
    wrong = {"requestId": "dear", "hash": "0x" + "0" * 64}
    assert served.http.post("/api/sandbox/sign/approve", json=wrong).status_code == 403
    told = served.http.post("/api/sandbox/sign/approve", json={"requestId": "dear", "hash": waiting["hash"]})
    assert (told.status_code, told.json()["humanConfirmed"]) == (200, True)
    assert submit(agent, "dear", value=DEAR).json()["signature"] == told.json()["signature"]
    assert served.http.post("/api/sandbox/sign/approve", json={"requestId": "dear"}).status_code == 404


def test_no_token_ends_the_signer(served: Served, agent: httpx.Client) -> None:
    client = served.limited("kill", "read")
    entries = client.get("/v1/sandboxes").json()["sandboxes"]
    (own,) = [one["id"] for one in entries if one["command"] == ["signer"] and one["status"] == "running"]
    assert client.delete(f"/v1/sandboxes/{own}").status_code == 403
    assert agent.get("/api/sandbox/sign/address").status_code == 200


def test_a_rejected_request_is_over(served: Served, agent: httpx.Client) -> None:
    submit(agent, "no", value=DEAR)
    assert served.http.post("/api/sandbox/sign/reject", json={"requestId": "no"}).json()["success"] is False
    assert submit(agent, "no", value=DEAR).status_code == 403
    assert served.http.post("/api/sandbox/sign/approve", json={"requestId": "no"}).status_code == 404


def test_one_token_never_has_both_scopes(served: Served) -> None:
    from sandbox.errors import InvalidArgument

    with pytest.raises(InvalidArgument):
        served.new_token("sign", "approve")
    tokens = served.home / "server" / "tokens.json"
    both = served.new_token("sign")
    kept = json.loads(tokens.read_text())
    kept[-1]["scopes"] = ["approve", "sign"]  # written by hand
    tokens.write_text(json.dumps(kept))
    assert submit(served.client(both), "both").status_code == 403


@pytest.mark.parametrize("scopes", [["read"], ["exec"], ["approve"], ["answer", "network", "host"]])
def test_asking_needs_the_scope(served: Served, scopes: list[str]) -> None:
    assert submit(served.limited(*scopes), "x").status_code == 403


def test_a_token_for_one_sandbox_neither_asks_nor_approves_here(served: Served) -> None:
    assert submit(served.limited("sign", sandboxes=["vm-1"]), "x").status_code == 403
    narrow = served.limited("approve", sandboxes=["vm-1"])
    assert narrow.post("/api/sandbox/sign/approve", json={"requestId": "dear"}).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        b'{"requestId":"d","requestId":"e","chainId":1337,"to":"0x1111111111111111111111111111111111111111","value":"1","data":"0x"}',
        b'{"requestId":"d","chainId":1337.0,"to":"0x1111111111111111111111111111111111111111","value":"1","data":"0x"}',
        b'{"requestId":"d","chainId":1337,"to":"0x1111111111111111111111111111111111111111","value":1,"data":"0x"}',
        b'{"requestId":"d","chainId":1337,"to":null,"value":"1","data":"0x"}',
        b'{"requestId":"d","chainId":1337,"to":"0x1111111111111111111111111111111111111111","value":"1","data":"0x","type":4}',
        b"[]", b"null", b"{", b"\xff",
    ],
)  # fmt: skip
def test_an_odd_body_is_refused(agent: httpx.Client, body: bytes) -> None:
    answer = agent.post("/api/sandbox/sign", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 403)
    assert "signature" not in answer.text or answer.json()["signature"] is None


def test_an_approval_with_a_key_twice_is_refused(served: Served, agent: httpx.Client) -> None:
    submit(agent, "two", value=DEAR)
    body = b'{"requestId":"other","requestId":"two"}'
    answer = served.http.post("/api/sandbox/sign/approve", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    served.http.post("/api/sandbox/sign/reject", json={"requestId": "two"})


def test_the_servers_process_cannot_approve_by_itself(signer: RunningSigner, agent: httpx.Client) -> None:
    """It holds hashes of tokens, and the signer wants the token."""
    from sandbox.errors import Denied
    from sandbox.signing import client

    submit(agent, "held", value=DEAR)
    hashes = [one["hash"] for one in json.loads((signer.home / "server" / "tokens.json").read_text())]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SANDBOX_HOME", str(signer.home))
        for given in hashes:
            with pytest.raises(Denied):
                client.decide({"op": "approve", "id": "held", "credential": {"token": given}})


def test_the_dashboards_reject_button_ends_what_waits(served: Served, agent: httpx.Client) -> None:
    for one in agent.get("/api/sandbox/sign/pending").json()["pending"]:
        served.http.post("/api/sandbox/sign/reject", json={"requestId": one["requestId"]})
    submit(agent, "unwanted", value=DEAR)
    with chromium() as browser, dashboard(browser, served) as page:
        page.on("dialog", lambda dialog: dialog.accept())
        card = page.locator("article.signature")
        card.get_by_role("button", name="Reject").click()
        card.wait_for(state="detached")
    told = submit(agent, "unwanted", value=DEAR)
    assert told.status_code == 403 and "rejected by a person" in told.json()["error"]


def test_the_dashboard_shows_what_would_be_signed_and_asks_twice(served: Served, agent: httpx.Client) -> None:
    for one in agent.get("/api/sandbox/sign/pending").json()["pending"]:
        served.http.post("/api/sandbox/sign/reject", json={"requestId": one["requestId"]})
    submit(agent, "seen", value=DEAR)
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept()

    with chromium() as browser, dashboard(browser, served) as page:
        page.on("dialog", answer)
        card = page.locator("article.signature")
        card.get_by_text("0.05 ETH").first.wait_for()
        assert "0.050021 ETH" in card.inner_text()
        card.get_by_role("button", name="Approve").click()
        page.get_by_role("alert").filter(has_text="Signed").wait_for()
    assert len(asked) == 2
    assert submit(agent, "seen", value=DEAR).json()["humanConfirmed"] is True
