"""The logins of agents that no registry has, or whose service nobody could try: a stand-in does what each documents.

Its key is in a variable or in the file that it keeps, or it logs in inside; no token comes in.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandbox.profiles.find import load
from tests.agents.conftest import Desk
from tests.agents.test_real_logins import JSON, Answer, kept_login, sent

pytestmark = pytest.mark.walls

KEYS = [
    ("amp", "AMP_API_KEY", "sgamp_user_01K0" + "aB3" * 20, "ampcode.com"),
    ("cursor-agent", "CURSOR_API_KEY", "key_" + "aB3" * 20, "api2.cursor.sh"),
    ("droid", "FACTORY_API_KEY", "fk-" + "aB3" * 20, "api.factory.ai"),
    ("kiro", "KIRO_API_KEY", "ksk_" + "aB3" * 20, "q.us-east-1.amazonaws.com"),
]
NEW = {"access": "eyJ" + "eF5" * 40, "refresh": "rt-" + "gH6" * 30}
RENEWED = "eyJ" + "iJ7" * 40


def does(desk: Desk, name: str, script: str) -> str:
    """What the stand-in prints that runs `script` inside."""
    desk.installs(load(name).program, f"#!/bin/sh\nset -e\n{script}\n")
    done = desk.run(name)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(host: str, token: str) -> str:
    return f'curl -sS https://{host}/model -H "Authorization: Bearer {token}" > /dev/null'


@pytest.mark.parametrize(("name", "variable", "key", "host"), KEYS, ids=[one[0] for one in KEYS])
def test_a_key_in_its_variable_stays_outside(desk: Desk, name: str, variable: str, key: str, host: str) -> None:
    desk.env[variable] = key
    shown = does(desk, name, f"echo ${variable}\n{ask(host, f'${variable}')}").strip()
    assert shown and shown != key
    assert len(shown) == len(key)
    assert sent(desk, host) == {key}


@pytest.mark.parametrize(
    ("name", "file", "login", "host"),
    [
        ("amp", ".local/share/amp/secrets.json", {"apiKey@https://ampcode.com/": NEW["access"]}, "ampcode.com"),
        ("cursor-agent", ".config/cursor/auth.json", {"accessToken": NEW["access"]}, "api2.cursor.sh"),
        ("droid", ".factory/auth.json", {"access_token": NEW["access"]}, "api.factory.ai"),
    ],
    ids=["amp", "cursor-agent", "droid"],
)
def test_a_login_in_its_file_stays_outside(desk: Desk, name: str, file: str, login: dict[str, str], host: str) -> None:
    desk.has({file: json.dumps(login)})
    token = f"$(sed 's/.*: *\"\\([^\"]*\\)\".*/\\1/' ~/{file} | tr -d '{{}}\\n ')"
    shown = json.loads(does(desk, name, f"cat ~/{file}\n{ask(host, token)}"))
    assert list(shown) == list(login)
    assert list(shown.values()) != list(login.values())
    assert sent(desk, host) == {NEW["access"]}
    assert json.loads((desk.home / file).read_text()) == login


def endpoints(desk: Desk, answers: dict[str, dict[str, Any]]) -> list[bytes]:
    """Servers that answer so, by host and path; the model answers anything. Returns the bodies that they were sent."""
    bodies: list[bytes] = []

    def answer(_: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        host = {name.lower(): value for name, value in headers}["host"]
        found = answers.get(f"{host}{target.partition('?')[0]}")
        if found is not None:
            bodies.append(body)
        return 200, JSON, json.dumps({} if found is None else found).encode()

    desk.world.answer = answer
    return bodies


TOKEN = """value() { sed 's/.*"'$1'": *"\\([^"]*\\)".*/\\1/'; }"""
CAMEL = {"accessToken": NEW["access"], "refreshToken": NEW["refresh"], "expiresIn": 3600}
SNAKE = {"access_token": NEW["access"], "refresh_token": NEW["refresh"], "expires_in": 3600}
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
INSIDE = [
    (
        "cursor-agent", "cursor", "accessToken", "api2.cursor.sh/auth/poll", CAMEL, "-X GET", "?uuid=u&verifier=v",
        "api2.cursor.sh/oauth/token", '{"grant_type": "refresh_token", "refresh_token": "%s"}', "api2.cursor.sh",
    ),
    (
        "droid", "droid", "access_token", "api.workos.com/user_management/authenticate", SNAKE,
        f"-d 'grant_type={DEVICE}&device_code=d&client_id=c'", "",
        "api.workos.com/user_management/authenticate", '{"grant_type": "refresh_token", "refresh_token": "%s"}',
        "api.factory.ai",
    ),
    (
        "kiro", "kiro", "accessToken", "oidc.us-east-1.amazonaws.com/token", CAMEL,
        f"""-H 'Content-Type: application/json' -d '{{"grantType": "{DEVICE}", "deviceCode": "d"}}'""", "",
        "oidc.us-east-1.amazonaws.com/token", '{"grantType": "refresh_token", "refreshToken": "%s"}',
        "q.us-east-1.amazonaws.com",
    ),
    (
        "kiro", "kiro", "accessToken", "prod.us-east-1.auth.desktop.kiro.dev/oauth/token", CAMEL,
        """-H 'Content-Type: application/json' -d '{"code": "c", "code_verifier": "v"}'""", "",
        "prod.us-east-1.auth.desktop.kiro.dev/refreshToken", '{"refreshToken": "%s"}', "q.us-east-1.amazonaws.com",
    ),
]  # fmt: skip


@pytest.mark.parametrize("flow", INSIDE, ids=["cursor-agent", "droid", "kiro", "kiro by Google or GitHub"])
def test_a_login_made_inside_ends_with_its_tokens_outside_and_is_renewed(desk: Desk, flow: tuple[Any, ...]) -> None:
    name, entry, field, login, answer, options, query, renewal, body, model = flow
    kept = load(name).keep[0]
    bodies = endpoints(desk, {login: answer})
    script = f"{TOKEN}\ncurl -sS {options} 'https://{login}{query}' | tee ~/{kept}/saved\n"
    said = json.loads(does(desk, name, script + ask(model, f"$(value {field} < ~/{kept}/saved)")))
    assert not {*said.values()} & {*NEW.values()}
    assert sent(desk, model) == {NEW["access"]}
    whole = kept_login(desk, entry)
    assert {NEW["access"], NEW["refresh"]} <= {*whole.values()}
    # The next run has what the program saved: placeholders, which are good for the model and for a renewal.
    renewed = {**answer, field: RENEWED}
    bodies = endpoints(desk, {renewal: renewed})
    second = field.replace("access", "refresh")
    quoted = body.replace('"', '\\"').replace("%s", f"$(value {second} < ~/{kept}/saved)")
    script = f"{TOKEN}\n{ask(model, f'$(value {field} < ~/{kept}/saved)')}\n"
    script += f"curl -sS -H 'Content-Type: application/json' -d \"{quoted}\" https://{renewal} > ~/{kept}/new\n"
    script += f"mv ~/{kept}/new ~/{kept}/saved\ncat ~/{kept}/saved\n"
    again = json.loads(does(desk, name, script + ask(model, f"$(value {field} < ~/{kept}/saved)")))
    assert not {*again.values()} & {*NEW.values(), RENEWED}
    assert NEW["refresh"].encode() in bodies[-1]
    assert sent(desk, model) == {NEW["access"], RENEWED}
    assert RENEWED in kept_login(desk, entry).values()


def test_the_tokens_that_cursor_gets_for_a_key_stay_outside(desk: Desk) -> None:
    desk.env["CURSOR_API_KEY"] = KEYS[1][2]
    endpoints(desk, {"api2.cursor.sh/auth/exchange_user_api_key": CAMEL})
    exchange = 'curl -sS -X POST https://api2.cursor.sh/auth/exchange_user_api_key -H "Authorization: Bearer '
    script = f'{TOKEN}\n{exchange}$CURSOR_API_KEY" > /tmp/got\ncat /tmp/got\n'
    script += ask("api2.cursor.sh", "$(value accessToken < /tmp/got)")
    said = json.loads(does(desk, "cursor-agent", script))
    assert not {*said.values()} & {*NEW.values()}
    assert sent(desk, "api2.cursor.sh") == {KEYS[1][2], NEW["access"]}
