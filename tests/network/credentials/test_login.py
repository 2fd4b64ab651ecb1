"""A login whose tokens never come in: the file inside, use, renewal, and what a hostile tenant tries with it."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ConfigError
from sandbox.network.credentials import credential_store
from sandbox.network.credentials.token_endpoint import MOST_AT_ONCE
from sandbox.network.credentials.token_request import TokenRequest
from tests.network.credentials.oauth import API, AUTH, Authority, entry, inside, jwt, refresh, token, write
from tests.network.lab import Lab

MakeLab = Callable[..., Lab]
Place = tuple[Lab, Authority, Path]


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "sandbox-home"))
    return tmp_path / "sandbox-home"


@pytest.fixture
def place(make_lab: MakeLab, tmp_path: Path, own_home: Path) -> Place:
    """A gate with a login, the server that it logs in to, and the person's file."""
    file = tmp_path / "claude" / ".credentials.json"
    write(file)
    lab = make_lab(credentials={"claude": entry(file)})
    return lab, Authority(lab.origins[AUTH]), file


def bearer(lab: Lab, word: str, host: str = API) -> tuple[int, bytes]:
    lab.host = host
    status, _, body = lab.ask("GET", "/v1/messages", {"Authorization": f"Bearer {word}"})
    return status, body


def stored(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_the_file_inside_is_the_same_with_placeholders(place: Place) -> None:
    lab, _, file = place
    here, there = inside(lab), stored(file)
    tokens = ("accessToken", "refreshToken")
    for name in tokens:
        real, seen = there["claudeAiOauth"].pop(name), here["claudeAiOauth"].pop(name)
        assert len(seen) == len(real) and seen[:13] == real[:13] and seen != real
    assert here == there


def test_the_api_gets_the_token_and_the_tenant_never_sees_it(place: Place) -> None:
    lab, _, _ = place
    status, body = bearer(lab, inside(lab)["claudeAiOauth"]["accessToken"])
    [seen] = lab.origins[API].seen
    assert dict(seen["headers"])["authorization"] == f"Bearer {token('oat', 1)}"
    assert status == 200 and token("oat", 1).encode() not in body  # the origin echoes what it got


def test_the_token_goes_to_no_other_host(place: Place) -> None:
    lab, _, _ = place
    status, body = bearer(lab, inside(lab)["claudeAiOauth"]["accessToken"], AUTH)
    assert status == 403 and b"credentials.claude" in body
    assert lab.origins[AUTH].seen == []


@pytest.mark.parametrize("form", [False, True], ids=["json", "form"])
def test_a_renewal_leaves_the_tokens_outside_and_writes_them_to_the_persons_file(place: Place, form: bool) -> None:
    lab, server, file = place
    before = inside(lab)["claudeAiOauth"]
    os.chmod(file, 0o640)
    status, headers, said = refresh(lab, before["refreshToken"], form=form)
    assert status == 200
    assert server.asked[0]["refresh_token"] == token("ort", 1)
    assert said == {  # stable placeholders, and what the program must know
        "token_type": "Bearer",
        "access_token": before["accessToken"],
        "refresh_token": before["refreshToken"],
        "expires_in": 28800,
        "scope": "user:inference user:profile",
    }
    assert "set-cookie" not in headers
    now = stored(file)
    assert now["claudeAiOauth"]["accessToken"] == token("oat", 2)
    assert now["claudeAiOauth"]["refreshToken"] == token("ort", 2)
    assert now["claudeAiOauth"]["expiresAt"] > 1700000000000
    assert now["claudeAiOauth"]["scopes"] == ["user:inference", "user:profile"]
    assert now["claudeAiOauth"]["subscriptionType"] == "max" and now["other"] == {"kept": 1}
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(file.parent) == [file.name]  # nothing is left beside it
    assert [(direction, name.rpartition(".")[2]) for _, direction, name in lab.used] == [
        ("outbound", "refreshToken"), ("inbound", "accessToken"), ("inbound", "refreshToken"),
    ]  # fmt: skip
    bearer(lab, said["access_token"])
    assert dict(lab.origins[API].seen[-1]["headers"])["authorization"] == f"Bearer {token('oat', 2)}"


def test_renewals_continue_and_old_values_stay_secret(place: Place) -> None:
    lab, _server, file = place
    word = inside(lab)["claudeAiOauth"]["refreshToken"]
    for number in (2, 3, 4):
        assert refresh(lab, word)[0] == 200
        assert stored(file)["claudeAiOauth"]["refreshToken"] == token("ort", number)
    for number in (1, 2, 3, 4):  # a server that has them still does not give them away
        echo = f"{token('oat', number)} {token('ort', number)}".encode()
        lab.origins[API].answer = lambda *_, echo=echo: (200, [], echo)
        _, body = bearer(lab, "nothing")
        assert token("oat", number).encode() not in body and token("ort", number).encode() not in body


def test_a_refused_renewal_reaches_the_tenant_as_it_is(place: Place) -> None:
    lab, server, file = place
    server.refusing = True
    before = file.read_text()
    status, _, said = refresh(lab, inside(lab)["claudeAiOauth"]["refreshToken"])
    assert (status, said["error"]) == (400, "invalid_grant")
    assert said["error_description"] == "Refresh token not found or invalid"
    assert file.read_text() == before


def test_a_renewal_by_the_persons_own_program_is_seen_at_once(place: Place) -> None:
    lab, server, file = place
    words = inside(lab)["claudeAiOauth"]
    write(file, 7)
    server.good = {token("ort", 7)}
    bearer(lab, words["accessToken"])
    assert dict(lab.origins[API].seen[-1]["headers"])["authorization"] == f"Bearer {token('oat', 7)}"
    assert refresh(lab, words["refreshToken"])[0] == 200
    assert server.asked[0]["refresh_token"] == token("ort", 7)


def test_a_file_that_is_being_written_leaves_what_was_known(place: Place) -> None:
    lab, _, file = place
    word = inside(lab)["claudeAiOauth"]["accessToken"]
    file.write_text('{"claudeAiOauth": {"acc')
    assert bearer(lab, word)[0] == 200
    assert dict(lab.origins[API].seen[-1]["headers"])["authorization"] == f"Bearer {token('oat', 1)}"


def test_after_a_logout_on_the_host_the_placeholder_is_worth_nothing(place: Place) -> None:
    lab, _, file = place
    word = inside(lab)["claudeAiOauth"]["accessToken"]
    file.unlink()
    status, body = bearer(lab, word)
    assert status == 403 and b"has no value" in body
    assert lab.origins[API].seen == []


def test_two_sandboxes_that_renew_at_the_same_time_lose_no_token(
    make_lab: MakeLab, tmp_path: Path, own_home: Path
) -> None:
    """The server gives each refresh token one life: whoever sends an old one is logged out."""
    file = tmp_path / "creds.json"
    write(file)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    labs = [Lab(tmp_path / name, {}, credentials={"claude": entry(file)}) for name in "ab"]
    try:
        server = Authority(labs[0].origins[AUTH])
        labs[1].origins[AUTH].answer = server.answer
        word = inside(labs[0])["claudeAiOauth"]["refreshToken"]
        assert inside(labs[1])["claudeAiOauth"]["refreshToken"] == word
        statuses: list[int] = []

        def renew(lab: Lab) -> None:
            for _ in range(5):
                statuses.append(refresh(lab, word)[0])

        threads = [threading.Thread(target=renew, args=(lab,)) for lab in labs]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert statuses == [200] * 10
        assert {stored(file)["claudeAiOauth"]["refreshToken"]} == server.good
    finally:
        for lab in labs:
            lab.close()


def test_tokens_that_somebody_else_renewed_meanwhile_win_when_they_last_longer(place: Place) -> None:
    lab, server, file = place
    word = inside(lab)["claudeAiOauth"]["refreshToken"]
    granted = server._granted

    def meanwhile(asked: dict[str, Any]) -> Any:
        write(file, 50, expiresAt=9_000_000_000_000)
        return granted(asked)

    server._granted = meanwhile  # type: ignore[method-assign]
    assert refresh(lab, word)[0] == 200
    assert stored(file)["claudeAiOauth"]["refreshToken"] == token("ort", 50)
    bearer(lab, inside(lab)["claudeAiOauth"]["accessToken"])
    assert dict(lab.origins[API].seen[-1]["headers"])["authorization"] == f"Bearer {token('oat', 50)}"


def test_where_the_file_cannot_be_written_the_tokens_are_good_for_this_sandbox(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sandbox.network.credentials import credential_store

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    lab, _, file = place
    monkeypatch.setattr(credential_store, "save", full)
    before = file.read_text()
    status, _, said = refresh(lab, inside(lab)["claudeAiOauth"]["refreshToken"])
    assert status == 200 and file.read_text() == before
    assert lab.complaints == [("credentials.claude", "OSError")]
    bearer(lab, said["access_token"])
    assert dict(lab.origins[API].seen[-1]["headers"])["authorization"] == f"Bearer {token('oat', 2)}"


def test_a_tenant_that_leaves_in_the_middle_of_a_renewal_loses_no_token(place: Place) -> None:
    lab, _, file = place
    word = inside(lab)["claudeAiOauth"]["refreshToken"]
    got, left = threading.Event(), asyncio.Event()

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(token("ort", 1).encode())  # the old token is worth nothing from here on
        got.set()
        await left.wait()
        said = json.dumps({"access_token": token("oat", 2), "refresh_token": token("ort", 2)}).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(said) + said
        )
        await writer.drain()

    lab.origins[AUTH].raw = slowly
    lab.host = AUTH
    body = json.dumps({"grant_type": "refresh_token", "refresh_token": word}).encode()
    head = (
        f"POST /oauth/token HTTP/1.1\r\nHost: {AUTH}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    with lab.tls_socket() as sock:
        sock.sendall(f"{head}\r\n\r\n".encode() + body)
        assert got.wait(20)
    lab.cancel_all()  # the gate ends, and the tenant's connection with it
    lab.wait_until_idle()
    lab.thread.loop.call_soon_threadsafe(left.set)
    lab.thread.run(lab.interception.finish())
    assert stored(file)["claudeAiOauth"]["refreshToken"] == token("ort", 2)


# -- a program that looks into its tokens


def test_a_jwt_stays_a_jwt_with_its_end_and_account_and_old_ones_still_work(
    make_lab: MakeLab, tmp_path: Path, own_home: Path
) -> None:
    file = tmp_path / "auth.json"
    file.write_text(json.dumps({"tokens": {"access_token": jwt(exp=1800000000), "refresh_token": token("ort", 1)}}))
    given = entry(file)
    given["fields"] = {
        "tokens.access_token": {"kind": "access", "hosts": [API]},
        "tokens.refresh_token": {"kind": "refresh", "hosts": [AUTH]},
    }
    given["refresh"] = {"hosts": [AUTH], "paths": ["/oauth/token"], "refreshed": "last_refresh"}
    lab = make_lab(credentials={"codex": given})
    server = Authority(lab.origins[AUTH])
    server.jwts = True
    from sandbox.network.credentials.token_shapes import jwt_claims

    first = inside(lab)["tokens"]["access_token"]
    assert jwt_claims(first) == {"exp": 1800000000}
    _, _, said = refresh(lab, inside(lab)["tokens"]["refresh_token"])
    assert jwt_claims(said["access_token"]) == {"exp": 1900000002, "chatgpt_account_id": "acc-1"}
    assert stored(file)["last_refresh"].endswith("Z")
    for word in (first, said["access_token"]):
        bearer(lab, word)
        sent = dict(lab.origins[API].seen[-1]["headers"])["authorization"]
        assert sent == f"Bearer {stored(file)['tokens']['access_token']}"


# -- logins made inside


def code(lab: Lab, grant: str = "authorization_code") -> Any:
    lab.host = AUTH
    body = json.dumps({"grant_type": grant, "code": "abc", "code_verifier": "x"}).encode()
    status, _, content = lab.ask("POST", "/oauth/token", {"Content-Type": "application/json"}, body)
    return status, json.loads(content)


@pytest.mark.parametrize("grant", ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"])
def test_a_login_made_inside_is_kept_for_sandboxes_and_leaves_the_persons_file_alone(
    make_lab: MakeLab, tmp_path: Path, own_home: Path, grant: str
) -> None:
    file = tmp_path / "claude" / "creds.json"
    lab = make_lab(credentials={"claude": entry(file)})
    Authority(lab.origins[AUTH])
    assert lab.logins is not None and lab.logins.logins[0].inside() is None  # nobody has logged in
    status, said = code(lab, grant)
    assert status == 200 and token("oat", 2) not in str(said) and token("ort", 2) not in str(said)
    assert not file.exists()
    kept = own_home / "credentials" / "claude.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert stored(kept)["claudeAiOauth"]["refreshToken"] == token("ort", 2)
    bearer(lab, said["access_token"])
    assert dict(lab.origins[API].seen[-1]["headers"])["authorization"] == f"Bearer {token('oat', 2)}"
    again = make_lab(credentials={"claude": entry(file)})  # the next run
    assert inside(again)["claudeAiOauth"]["accessToken"] == said["access_token"]
    assert inside(again)["claudeAiOauth"]["scopes"] == ["user:inference", "user:profile"]
    Authority(again.origins[AUTH]).good = {token("ort", 2)}
    assert refresh(again, said["refresh_token"])[0] == 200
    assert stored(kept)["claudeAiOauth"]["refreshToken"] == token("ort", 2) and not file.exists()


def test_a_notice_says_when_a_login_made_inside_takes_precedence_over_the_users(
    make_lab: MakeLab, tmp_path: Path, own_home: Path
) -> None:
    file = tmp_path / "claude" / "creds.json"
    lab = make_lab(credentials={"claude": entry(file)})
    Authority(lab.origins[AUTH])
    assert code(lab)[0] == 200
    alone = make_lab(credentials={"claude": entry(file)})  # the only login there is: nothing to tell
    file.parent.mkdir(exist_ok=True)
    file.write_bytes((own_home / "credentials" / "claude.json").read_bytes())
    both = make_lab(credentials={"claude": entry(file)})
    assert alone.logins is not None and alone.logins.notices == []
    assert both.logins is not None and "instead of your own" in both.logins.notices[0]


def test_a_login_made_inside_one_project_is_not_used_in_another(
    make_lab: MakeLab, tmp_path: Path, own_home: Path
) -> None:
    file = tmp_path / "claude" / "creds.json"
    write(file)
    hostile = make_lab(credentials={"claude": entry(file)}, project="hostile-1")
    Authority(hostile.origins[AUTH])
    assert code(hostile)[0] == 200  # with an account of the tenant's
    for project, wanted in (("other-2", token("oat", 1)), ("hostile-1", token("oat", 2))):
        lab = make_lab(credentials={"claude": entry(file)}, project=project)
        lab.host = API
        bearer(lab, inside(lab)["claudeAiOauth"]["accessToken"])
        assert dict(lab.origins[API].seen[-1]["headers"])["authorization"] == f"Bearer {wanted}"
        assert lab.logins is not None
        assert ["instead of your own" in one for one in lab.logins.notices] == [True] * (project == "hostile-1")


def test_a_login_made_inside_is_for_all_projects_once_the_person_shares_it(
    make_lab: MakeLab, tmp_path: Path, own_home: Path
) -> None:
    file = tmp_path / "claude" / "creds.json"
    lab = make_lab(credentials={"claude": entry(file)}, project="mine-1")
    server = Authority(lab.origins[AUTH])
    server.more = {"other_key": "sk-ant-" + "k" * 40}
    _, said = code(lab)
    before = make_lab(credentials={"claude": entry(file)}, project="other-2")
    assert before.logins is not None and before.logins.logins[0].inside() is None
    assert "`sandbox profile share-login claude`" in before.logins.notices[0]
    assert not credential_store.share("claude", "other-2")
    assert credential_store.share("claude", "mine-1")
    after = make_lab(credentials={"claude": entry(file)}, project="other-2")
    assert inside(after)["claudeAiOauth"]["accessToken"] == said["access_token"]
    assert after.logins is not None and after.logins.notices == []
    bearer(after, said["other_key"])
    assert dict(after.origins[API].seen[-1]["headers"])["authorization"] == f"Bearer {'sk-ant-' + 'k' * 40}"


def test_a_login_made_inside_is_the_persons_own_when_the_entry_says_so(
    make_lab: MakeLab, tmp_path: Path, own_home: Path
) -> None:
    file = tmp_path / "claude" / "creds.json"
    lab = make_lab(credentials={"claude": entry(file, save_login=True)})
    Authority(lab.origins[AUTH])
    assert code(lab)[0] == 200
    assert stored(file)["claudeAiOauth"]["refreshToken"] == token("ort", 2)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


# -- attacks


@pytest.mark.parametrize(
    "target", ["/echo", "/oauth/token/", "/oauth/%74oken", "/oauth/token?refresh=1", "//oauth/token", "/OAUTH/token"]
)
def test_the_refresh_token_goes_to_exactly_its_path(place: Place, target: str) -> None:
    lab, _server, _ = place
    status, _, said = refresh(lab, inside(lab)["claudeAiOauth"]["refreshToken"], target=target)
    assert status == 403 and b"only to its token endpoint" in (said if isinstance(said, bytes) else b"")
    assert lab.origins[AUTH].seen == []


@pytest.mark.parametrize(
    "field", [("X-Original-URL", "/echo"), ("X-Rewrite-URL", "/echo"), ("X-HTTP-Method-Override", "PUT")]
)
def test_the_refresh_token_goes_nowhere_else_by_a_field_that_servers_take_for_the_path(
    place: Place, field: tuple[str, str]
) -> None:
    lab, _server, _ = place
    asked = {"grant_type": "refresh_token", "refresh_token": inside(lab)["claudeAiOauth"]["refreshToken"]}
    lab.host = AUTH
    headers = {"Content-Type": "application/json", field[0]: field[1]}
    status, _, _ = lab.ask("POST", "/oauth/token", headers, json.dumps(asked).encode())
    assert status == 403
    assert lab.origins[AUTH].seen == []


@pytest.mark.parametrize("where", ["head", "query", "twice", "other field", "other grant", "list", "nested", "GET"])
def test_the_refresh_token_goes_into_exactly_its_field(place: Place, where: str) -> None:
    lab, _server, _ = place
    word = inside(lab)["claudeAiOauth"]["refreshToken"]
    lab.host = AUTH
    asked: dict[str, Any] = {"grant_type": "refresh_token", "refresh_token": word}
    headers, target, method = {"Content-Type": "application/json"}, "/oauth/token", "POST"
    if where == "head":
        headers["X-Echo"] = word
    elif where == "query":
        target += f"?x={word}"
    elif where == "twice":
        asked["scope"] = word
    elif where == "other field":
        asked = {"grant_type": "refresh_token", "subject_token": word}
    elif where == "other grant":
        asked["grant_type"] = "urn:ietf:params:oauth:grant-type:token-exchange"
    elif where == "list":
        asked["refresh_token"] = [word]
    elif where == "nested":
        asked = {"grant_type": "refresh_token", "a": {"refresh_token": word}}
    else:
        method = "GET"
    status, _, _ = lab.ask(method, target, headers, json.dumps(asked).encode())
    assert status == 403
    assert lab.origins[AUTH].seen == []


def test_an_answer_of_the_token_endpoint_has_no_token_in_any_field(place: Place) -> None:
    lab, server, _file = place
    odd = "Zm9vYmFy9f8e7d6c5b4a3210QWERTYuiop"
    server.more = {
        "raw_key": "sk-ant-api03-" + "Q" * 90,
        "session": odd,
        "nested": [{"deep": odd + "2"}],
        "account": {"email_address": "me@example.org", "note": token("oat", 77)},
    }
    status, _, said = refresh(lab, inside(lab)["claudeAiOauth"]["refreshToken"])
    text = json.dumps(said)
    assert status == 200 and odd not in text and "Q" * 20 not in text and token("oat", 77) not in text
    assert said["account"]["email_address"] == "me@example.org"
    assert said["raw_key"].startswith("sk-ant-api03-")
    # It can be used where the entry's tokens may go, and nowhere else.
    assert bearer(lab, said["raw_key"])[0] == 200
    assert dict(lab.origins[API].seen[-1]["headers"])["authorization"] == "Bearer sk-ant-api03-" + "Q" * 90
    assert bearer(lab, said["raw_key"], AUTH)[0] == 403


def test_an_exchange_for_another_kind_of_token_does_not_replace_the_persons(place: Place, own_home: Path) -> None:
    """As codex asks for an API key with its id token: the answer's access_token is none of the file's."""
    lab, _server, file = place
    before = file.read_text()
    lab.host = AUTH
    asked = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "requested_token": "openai-api-key"}
    _, _, content = lab.ask("POST", "/oauth/token", {"Content-Type": "application/json"}, json.dumps(asked).encode())
    assert token("oat", 2).encode() not in content and token("ort", 2).encode() not in content
    assert file.read_text() == before
    assert not list((own_home / "credentials").glob("claude.*"))


def test_a_renewal_with_a_token_of_the_tenants_own_does_not_replace_the_persons(place: Place, own_home: Path) -> None:
    lab, server, file = place
    server.good.add("attackers-own-refresh-token")
    before = file.read_text()
    status, _, said = refresh(lab, "attackers-own-refresh-token")
    assert status == 200 and token("oat", 2) not in str(said)
    assert file.read_text() == before
    assert not list((own_home / "credentials").glob("claude.*"))


def test_compressed_answers_hide_nothing(place: Place) -> None:
    lab, server, file = place
    server.zipped = True
    status, _, said = refresh(lab, inside(lab)["claudeAiOauth"]["refreshToken"])
    assert status == 200 and token("oat", 2) not in str(said)
    assert stored(file)["claudeAiOauth"]["accessToken"] == token("oat", 2)


def test_answers_over_http2_hide_nothing(make_lab: MakeLab, tmp_path: Path, own_home: Path) -> None:
    file = tmp_path / "creds.json"
    write(file)
    lab = make_lab(credentials={"claude": entry(file)}, protocols=["h2", "http/1.1"])
    Authority(lab.origins[AUTH])
    status, _, said = refresh(lab, inside(lab)["claudeAiOauth"]["refreshToken"])
    assert status == 200 and token("oat", 2) not in str(said)
    assert stored(file)["claudeAiOauth"]["accessToken"] == token("oat", 2)


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (302, [("Location", f"https://x.example.org/#access_token={token('oat', 5)}")], b""),
        (200, [("Content-Type", "text/html")], f"<p>{token('oat', 5)}</p>".encode()),
        (200, [("Content-Type", "application/json")], b'{"a": "' + token("oat", 5).encode()),
        (200, [("Content-Type", "application/json")], b'{"a": "' + b"x" * 2**20 + b'"}'),
        (200, [("Content-Encoding", "br")], token("oat", 5).encode()),
        (400, [("X-Token", token("oat", 5))], json.dumps({"error": token("oat", 5)}).encode()),
        (500, [], token("oat", 5).encode()),
        (200, [("Content-Type", "application/json")], json.dumps({token("oat", 5): 1}).encode()),
    ],
)
def test_no_odd_answer_brings_a_token_in(place: Place, status: int, headers: Any, body: bytes) -> None:
    lab, _server, _file = place
    lab.origins[AUTH].answer = lambda *_: (status, headers, body)
    lab.host = AUTH
    asked = {"grant_type": "authorization_code", "code": "x"}
    got = lab.ask("POST", "/oauth/token", {"Content-Type": "application/json"}, json.dumps(asked).encode())
    assert token("oat", 5) not in str(got)
    assert (got[0] == 403) == (status < 400)  # what cannot be read is refused, an error is told


@pytest.mark.parametrize(
    "access", ["", "x", "a\r\nHost: x.example.org", "\u2603" * 20, "q1W" * 40_000, "<it>", "a <it>"]
)
def test_an_answer_without_a_valid_token_leaves_the_users_file_alone(place: Place, access: str) -> None:
    lab, server, file = place
    before, word = file.read_text(), inside(lab)["claudeAiOauth"]
    said = {"access_token": access.replace("<it>", word["accessToken"]), "refresh_token": token("ort", 9)}
    odd, lab.origins[AUTH].answer = lab.origins[AUTH].answer, lambda *_: (200, [], json.dumps(said).encode())
    assert token("ort", 9) not in str(refresh(lab, word["refreshToken"]))
    assert file.read_text() == before
    lab.origins[AUTH].answer = odd
    assert refresh(lab, word["refreshToken"])[0] == 200 and server.asked[-1]["refresh_token"] == token("ort", 1)
    assert stored(file)["claudeAiOauth"]["accessToken"] == token("oat", 2)


@pytest.mark.parametrize("target", ["/oauth/%74oken", "//oauth/token", "/x/../oauth/token", "/OAuth/Token/"])
def test_another_spelling_of_the_path_brings_no_token_in_either(place: Place, target: str) -> None:
    lab, _server, _file = place
    lab.origins[AUTH].answer = lambda *_: (200, [], json.dumps({"access_token": token("oat", 5)}).encode())
    lab.host = AUTH
    asked = {"grant_type": "authorization_code", "code": "x"}
    got = lab.ask("POST", target, {"Content-Type": "application/json"}, json.dumps(asked).encode())
    assert token("oat", 5) not in str(got)


def test_strings_of_the_file_that_nobody_knows_stay_outside_and_go_nowhere(
    make_lab: MakeLab, tmp_path: Path, own_home: Path
) -> None:
    file = tmp_path / "creds.json"
    write(file)
    data = stored(file)
    data["mcpOAuth"] = {"server": {"accessToken": "another-services-token-0123456789"}}
    file.write_text(json.dumps(data))
    lab = make_lab(credentials={"claude": entry(file)})
    word = inside(lab)["mcpOAuth"]["server"]["accessToken"]
    assert word != "another-services-token-0123456789"
    assert bearer(lab, word)[0] == 403
    lab.origins[API].answer = lambda *_: (200, [], b"another-services-token-0123456789")
    assert b"another" not in bearer(lab, "x")[1]


def test_a_placeholder_that_is_a_real_value_is_an_error(make_lab: MakeLab, tmp_path: Path, own_home: Path) -> None:
    file = tmp_path / "creds.json"
    write(file)
    word = inside(make_lab(credentials={"claude": entry(file)}))["claudeAiOauth"]["accessToken"]
    write(file, accessToken=word)
    with pytest.raises(ConfigError, match="must not contain a secret's value"):
        make_lab(credentials={"claude": entry(file)})


def test_nothing_that_is_kept_or_reported_shows_a_value(place: Place) -> None:
    lab, _server, _file = place
    refresh(lab, inside(lab)["claudeAiOauth"]["refreshToken"])
    bearer(lab, token("oat", 2))
    assert lab.logins is not None
    shown = f"{lab.reports} {lab.raised} {lab.logins.held()} {list(lab.logins.logins[0].tokens())} {lab.interception}"
    for number in (1, 2):
        assert token("oat", number) not in shown and token("ort", number) not in shown


def test_an_answer_with_any_success_counts(place: Place) -> None:
    lab, server, file = place
    answer = server.answer
    lab.origins[AUTH].answer = lambda *words: (201, *answer(*words)[1:])
    assert refresh(lab, inside(lab)["claudeAiOauth"]["refreshToken"])[0] == 201
    assert stored(file)["claudeAiOauth"]["refreshToken"] == token("ort", 2)


def test_an_answer_full_of_tokens_and_requests_without_end_are_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sandbox.network.credentials import token_endpoint

    lab, _, _ = place
    many = json.dumps([f"{token('oat', number)}" for number in range(1000)]).encode()
    server = lab.origins[AUTH].answer
    lab.origins[AUTH].answer = lambda *_: (200, [], many)
    assert refresh(lab, "of-its-own")[0] == 403
    lab.origins[AUTH].answer = server
    monkeypatch.setattr(token_endpoint, "MOST_EXCHANGES", 3)
    assert [refresh(lab, "of-its-own")[0] for _ in range(3)] == [400, 400, 403]


def test_requests_that_outlive_their_connections_are_few(place: Place) -> None:
    lab, _server, _file = place
    asked, ends = threading.Semaphore(0), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.release()
        await ends.wait()

    lab.origins[AUTH].raw = silent
    lab.host = AUTH
    head = b"POST /oauth/token HTTP/1.1\r\nHost: other.example.com\r\nContent-Type: application/json\r\n"
    whole = head + b"Content-Length: 2\r\n\r\n{}"
    for _ in range(MOST_AT_ONCE):
        with lab.tls_socket() as left:  # and does not wait
            left.sendall(whole)
            assert asked.acquire(timeout=20)
    assert b"403" in lab.say(whole, once=True)[:20]
    lab.thread.loop.call_soon_threadsafe(ends.set)
    lab.thread.run(lab.interception.finish())
    lab.origins[AUTH].raw = None
    assert refresh(lab, inside(lab)["claudeAiOauth"]["refreshToken"])[0] == 200


def test_a_change_of_the_network_leaves_logins_as_they_are(place: Place) -> None:
    lab, _, _ = place
    words = inside(lab)["claudeAiOauth"]
    lab.update({"secrets": {"KEY": {"value": "another-secret-value", "hosts": [API], "placeholder": "another-place"}}})
    assert bearer(lab, words["accessToken"])[0] == 200
    lab.update({"secrets": {}})
    assert bearer(lab, words["accessToken"])[0] == 200
    assert dict(lab.origins[API].seen[-1]["headers"])["authorization"] == f"Bearer {token('oat', 1)}"
    assert bearer(lab, "another-place")[0] == 403
    assert refresh(lab, words["refreshToken"])[0] == 200


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"grant_type": "refresh_token", "refresh_token": "one"}, "one"),
        ({"grantType": "refresh_token", "refreshToken": "one", "clientId": "c"}, "one"),
        ({"refreshToken": "one"}, "one"),
        ({"refresh_token": "one"}, ""),
        ({"refreshToken": "one", "more": "x"}, ""),
        ({"grant_type": "refresh_token", "refresh_token": "one", "refreshToken": "two"}, ""),
        ({"grant_type": "refresh_token", "grantType": "password", "refresh_token": "one"}, ""),
        ({"grantType": "refresh_token", "refreshToken": 1}, ""),
    ],
)
def test_a_refresh_token_is_found_in_two_spellings_and_never_in_both(body: dict[str, object], found: str) -> None:
    assert TokenRequest("application/json", json.dumps(body).encode()).refresh_token == found
