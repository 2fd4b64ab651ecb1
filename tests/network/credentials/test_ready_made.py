"""The ready-made entries, each against a server that speaks its login's protocol."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from sandbox.network.credentials.token_shapes import jwt_claims
from tests.network.credentials.oauth import jwt
from tests.network.lab import Lab

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}
Answer = tuple[int, list[tuple[str, str]], bytes]


class Desk:
    """A gate with ready-made credentials, the person's home, and servers under the real names on the loopback."""

    def __init__(self, lab: Lab, home: Path) -> None:
        self.lab, self.home = lab, home

    def inside(self, name: str) -> str:
        assert self.lab.logins is not None
        login = next(one for one in self.lab.logins.logins if one.name == name)
        text = login.inside()
        assert text is not None
        return text

    def ask(self, host: str, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, bytes]:
        self.lab.host = host
        status, _, content = self.lab.ask(method, target, headers, body)
        return status, content

    def bearer(self, host: str, word: str, target: str = "/v1", field: str = "authorization") -> str:
        """What the host gets for a placeholder."""
        value = f"Bearer {word}" if field == "authorization" else word
        status, content = self.ask(host, "GET", target, {field: value})
        assert status == 200, content
        return str(dict(self.lab.origins[host].seen[-1]["headers"])[field]).removeprefix("Bearer ")

    def server(self, host: str, granted: Callable[[dict[str, str], str], dict[str, Any]]) -> None:
        """`host` answers with what `granted` says to a request."""

        def answer(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
            kind = dict(headers).get("content-type", "")
            asked = json.loads(body) if "json" in kind else dict(parse_qsl(body.decode()))
            return 200, [("Content-Type", "application/json")], json.dumps(granted(asked, target)).encode()

        self.lab.origins[host].answer = answer

    def read(self, name: str) -> Any:
        return json.loads((self.home / name).read_text())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Desk]]:
    home = tmp_path / "person"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "sandbox-home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY", "GH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    made: list[Lab] = []

    def make(credentials: dict[str, Any], hosts: list[str], files: dict[str, Any]) -> Desk:
        for name, content in files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(content if isinstance(content, str) else json.dumps(content))
        made.append(Lab(tmp_path, {}, credentials=credentials, names=hosts))
        return Desk(made[-1], home)

    yield make
    for one in made:
        one.close()


Make = Callable[..., Desk]
OAT, ORT = "sk-ant-oat01-" + "aB3" * 30, "sk-ant-ort01-" + "cD4" * 30
ANTHROPIC = ["api.anthropic.com", "platform.claude.com"]


def test_claude_with_a_subscription(desk: Make) -> None:
    oauth = {
        "accessToken": OAT,
        "refreshToken": ORT,
        "expiresAt": 1700000000000,
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": "max",
        "rateLimitTier": "default_claude_max_20x",
    }
    here = desk({"claude": {}}, ANTHROPIC, {".claude/.credentials.json": {"claudeAiOauth": oauth}})
    seen = json.loads(here.inside("claude"))["claudeAiOauth"]
    assert {**seen, "accessToken": OAT, "refreshToken": ORT} == oauth
    assert here.bearer("api.anthropic.com", seen["accessToken"], "/v1/messages") == OAT
    new = OAT.replace("aB3", "eF5"), ORT.replace("cD4", "gH6")

    def granted(asked: dict[str, str], target: str) -> dict[str, Any]:
        assert asked["grant_type"] == "refresh_token" and asked["refresh_token"] == ORT
        return {
            "token_type": "Bearer",
            "access_token": new[0],
            "expires_in": 28800,
            "refresh_token": new[1],
            "scope": "user:inference user:profile",
            "organization": {"uuid": "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "name": "me"},
            "account": {"uuid": "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "email_address": "me@example.org"},
        }

    here.server("platform.claude.com", granted)
    client = "9d1c250a-e61b-44d9-88ed-5944d1962f5e"
    body = {"grant_type": "refresh_token", "refresh_token": seen["refreshToken"], "client_id": client}
    status, content = here.ask("platform.claude.com", "POST", "/v1/oauth/token", JSON, json.dumps(body).encode())
    said = json.loads(content)
    assert status == 200 and said["account"]["email_address"] == "me@example.org" and said["expires_in"] == 28800
    assert (said["access_token"], said["refresh_token"]) == (seen["accessToken"], seen["refreshToken"])
    there = here.read(".claude/.credentials.json")["claudeAiOauth"]
    assert (there["accessToken"], there["refreshToken"]) == new and there["subscriptionType"] == "max"
    assert here.bearer("api.anthropic.com", said["access_token"], "/v1/messages") == new[0]


def test_claude_makes_itself_a_key_that_stays_outside(desk: Make) -> None:
    """A login with the console ends in `create_api_key`, whose answer has the key in a field of its own."""
    here = desk({"claude": {}}, ANTHROPIC, {})
    key = "sk-ant-api03-" + "Kk9" * 31
    here.server("api.anthropic.com", lambda asked, target: {"raw_key": key})
    _, content = here.ask("api.anthropic.com", "POST", "/api/oauth/claude_cli/create_api_key", JSON, b"{}")
    word = json.loads(content)["raw_key"]
    assert word.startswith("sk-ant-api03-") and word != key and len(word) == len(key)
    here.server("api.anthropic.com", lambda asked, target: {})
    assert here.bearer("api.anthropic.com", word, field="x-api-key") == key


def test_a_key_in_a_variable(desk: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        "ANTHROPIC_API_KEY": ("claude", "api.anthropic.com", "sk-ant-api03-" + "Kk9" * 31),
        "OPENAI_API_KEY": ("codex", "api.openai.com", "sk-proj-" + "Kk9" * 40),
        "GEMINI_API_KEY": ("gemini", "generativelanguage.googleapis.com", "AIza" + "Kk9" * 11 + "ab"),
    }
    for name, (_, _, value) in keys.items():
        monkeypatch.setenv(name, value)
    here = desk({"claude": {}, "codex": {}, "gemini": {}}, [host for _, host, _ in keys.values()], {})
    assert here.lab.logins is not None
    for name, (_, host, value) in keys.items():
        word = here.lab.logins.environment[name]
        assert len(word) == len(value) and word[:4] == value[:4] and word != value
        assert here.bearer(host, word, field="x-api-key") == value
    status, _ = here.ask(
        "generativelanguage.googleapis.com", "GET", f"/v1?key={here.lab.logins.environment['GEMINI_API_KEY']}", {}
    )
    assert status == 200
    assert keys["GEMINI_API_KEY"][2] in here.lab.origins["generativelanguage.googleapis.com"].seen[-1]["target"]


def test_codex_with_chatgpt(desk: Make) -> None:
    """codex reads the account from its tokens, and asks for a key with its id token."""
    claims = {"chatgpt_account_id": "acc-1", "chatgpt_plan_type": "pro"}
    first = {
        "id_token": jwt(email="me@example.org", exp=1800000000, **{"https://api.openai.com/auth": claims}),
        "access_token": jwt(exp=1800000000, **{"https://api.openai.com/auth": claims}),
        "refresh_token": "rt_" + "aB3" * 20,
        "account_id": "acc-1",
    }
    auth = {"OPENAI_API_KEY": None, "auth_mode": "chatgpt", "tokens": first, "last_refresh": "2026-11-01T00:00:00Z"}
    here = desk({"codex": {}}, ["chatgpt.com", "auth.openai.com", "api.openai.com"], {".codex/auth.json": auth})
    seen = json.loads(here.inside("codex"))
    tokens = seen["tokens"]
    assert (seen["auth_mode"], tokens["account_id"], seen["OPENAI_API_KEY"]) == ("chatgpt", "acc-1", None)
    assert jwt_claims(tokens["access_token"]) == {"exp": 1800000000, "https://api.openai.com/auth": claims}
    assert jwt_claims(tokens["id_token"]) == {"exp": 1800000000, "https://api.openai.com/auth": claims}
    assert here.bearer("chatgpt.com", tokens["access_token"], "/backend-api/codex") == first["access_token"]
    second = {
        "id_token": jwt(exp=1900000000, **{"https://api.openai.com/auth": claims}),
        "access_token": jwt(exp=1900000000, sub="me", **{"https://api.openai.com/auth": claims}),
        "refresh_token": "rt_" + "cD4" * 20,
    }
    asked_for: list[dict[str, str]] = []

    def granted(asked: dict[str, str], target: str) -> dict[str, Any]:
        asked_for.append(asked)
        return {"access_token": "sk-proj-" + "Zz1" * 30} if "exchange" in asked["grant_type"] else second

    here.server("auth.openai.com", granted)
    body = {"client_id": "app", "grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    _, content = here.ask("auth.openai.com", "POST", "/oauth/token", JSON, json.dumps(body).encode())
    said = json.loads(content)
    assert asked_for[0]["refresh_token"] == first["refresh_token"]
    assert (jwt_claims(said["access_token"]) or {})["exp"] == 1900000000
    assert here.read(".codex/auth.json")["tokens"] == {**second, "account_id": "acc-1"}
    assert here.read(".codex/auth.json")["last_refresh"] > "2026-11-01T00:00:01Z"
    assert here.bearer("chatgpt.com", said["access_token"]) == second["access_token"]
    exchange = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token": "openai-api-key",
        "subject_token": said["id_token"],
    }
    _, content = here.ask("auth.openai.com", "POST", "/oauth/token", FORM, urlencode(exchange).encode())
    assert asked_for[1]["subject_token"] == second["id_token"]
    word = json.loads(content)["access_token"]
    assert "Zz1Zz1" not in word and here.bearer("api.openai.com", word) == "sk-proj-" + "Zz1" * 30
    assert here.read(".codex/auth.json")["tokens"]["access_token"] == second["access_token"]


def test_gemini_with_google(desk: Make) -> None:
    first = {
        "access_token": "ya29.a0" + "aB3" * 50,
        "refresh_token": "1//0g" + "aB3" * 30,
        "scope": "https://www.googleapis.com/auth/cloud-platform openid",
        "token_type": "Bearer",
        "id_token": jwt(iss="https://accounts.google.com", exp=1800000000, email="me@example.org"),
        "expiry_date": 1700000000000,
    }
    hosts = ["cloudcode-pa.googleapis.com", "oauth2.googleapis.com"]
    here = desk({"gemini": {}}, hosts, {".gemini/oauth_creds.json": first})
    seen = json.loads(here.inside("gemini"))
    assert (seen["scope"], seen["expiry_date"]) == (first["scope"], 1700000000000)
    assert here.bearer(hosts[0], seen["access_token"]) == first["access_token"]
    new = "ya29.a0" + "xY7" * 50

    def granted(asked: dict[str, str], target: str) -> dict[str, Any]:
        assert asked["refresh_token"] == first["refresh_token"]
        return {"access_token": new, "expires_in": 3599, "scope": first["scope"], "token_type": "Bearer"}

    here.server("oauth2.googleapis.com", granted)
    body = {
        "grant_type": "refresh_token",
        "refresh_token": seen["refresh_token"],
        "client_id": "x",
        "client_secret": "y",
    }
    _, content = here.ask("oauth2.googleapis.com", "POST", "/token", FORM, urlencode(body).encode())
    assert json.loads(content)["access_token"] == seen["access_token"]
    there = here.read(".gemini/oauth_creds.json")
    assert (there["access_token"], there["refresh_token"]) == (new, first["refresh_token"])
    assert there["expiry_date"] > 1700000000000


def test_qwen_logs_in_by_a_device_code(desk: Make) -> None:
    here = desk({"qwen": {}}, ["chat.qwen.ai", "portal.qwen.ai"], {})
    first, second = ({"access_token": sign * 90, "refresh_token": sign * 80 + "r"} for sign in ("aB3", "cD4"))
    more = {"status": "success", "token_type": "Bearer", "expires_in": 21600, "resource_url": "portal.qwen.ai"}
    here.server("chat.qwen.ai", lambda asked, target: {**(second if "refresh_token" in asked else first), **more})
    device = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": "x", "client_id": "y"}
    _, content = here.ask("chat.qwen.ai", "POST", "/api/v1/oauth2/token", FORM, urlencode(device).encode())
    said = json.loads(content)
    assert {name: said[name] for name in more} == more
    assert not {first["access_token"], first["refresh_token"]} & set(said.values())
    assert here.bearer("portal.qwen.ai", said["access_token"]) == first["access_token"]
    renewal = {"grant_type": "refresh_token", "refresh_token": said["refresh_token"], "client_id": "y"}
    _, content = here.ask("chat.qwen.ai", "POST", "/api/v1/oauth2/token", FORM, urlencode(renewal).encode())
    assert json.loads(content)["access_token"] == said["access_token"]
    assert here.bearer("portal.qwen.ai", said["access_token"]) == second["access_token"]


def test_gh_and_its_login_inside(desk: Make) -> None:
    real = "gho_" + "aB3" * 12
    hosts = ["github.com", "api.github.com"]
    yml = f"github.com:\n    user: me\n    oauth_token: {real}\n    git_protocol: https\n"
    here = desk({"github": {}}, hosts, {".config/gh/hosts.yml": yml})
    text = here.inside("github")
    word = text.partition("oauth_token: ")[2].splitlines()[0].strip('"')
    assert "user: me" in text and real not in text and word.startswith("gho_")
    assert here.bearer("api.github.com", word) == real
    basic = base64.b64encode(f"x-access-token:{word}".encode()).decode()
    here.ask("github.com", "GET", "/me/x.git/info/refs", {"Authorization": f"Basic {basic}"})
    got = dict(here.lab.origins["github.com"].seen[-1]["headers"])["authorization"]
    assert base64.b64decode(got.removeprefix("Basic ")) == f"x-access-token:{real}".encode()
    # `gh auth login` inside: GitHub answers with a form.
    new = "gho_" + "zZ9" * 12
    answer = f"access_token={new}&scope=repo%2Cgist&token_type=bearer".encode()
    here.lab.origins["github.com"].answer = lambda *_: (200, [("Content-Type", FORM["Content-Type"])], answer)
    body = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": "x", "client_id": "y"}
    _, content = here.ask("github.com", "POST", "/login/oauth/access_token", FORM, urlencode(body).encode())
    said = dict(parse_qsl(content.decode()))
    assert said["scope"] == "repo,gist" and said["access_token"].startswith("gho_") and new not in content.decode()
    assert here.bearer("api.github.com", said["access_token"]) == new
    assert real in (here.home / ".config/gh/hosts.yml").read_text()
    # It is kept for the next run.
    again = desk({"github": {}}, hosts, {})
    assert again.bearer("api.github.com", said["access_token"]) == new


def test_gh_that_keeps_its_token_in_the_keyring(desk: Make, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    gh = tmp_path / "bin" / "gh"
    gh.write_text("#!/bin/sh\necho gho_" + "aB3" * 12 + "\n")
    gh.chmod(0o755)
    here = desk({"github": {}}, ["github.com", "api.github.com"], {})
    assert here.lab.logins is not None
    word = here.lab.logins.environment["GH_TOKEN"]
    assert here.bearer("api.github.com", word) == "gho_" + "aB3" * 12
    assert word in here.lab.logins.git_settings()


def test_npm_and_pip(desk: Make) -> None:
    files = {
        ".npmrc": "//registry.npmjs.org/:_authToken=npm_"
        + "aB3" * 12
        + "\n//corp.example.org/npm/:_password=cGFzc3dvcmQ=\n",
        ".netrc": "machine pypi.example.org login me password hunter2-hunter2\n",
        ".config/pip/pip.conf": "[global]\nindex-url = https://me:p%40ss-word-1@pypi.example.org/simple\n",
    }
    hosts = ["registry.npmjs.org", "pypi.example.org"]
    here = desk({"npm": {}, "netrc": {}, "pip": {}}, hosts, files)
    word = here.inside("npm").partition("_authToken=")[2].splitlines()[0]
    assert here.bearer("registry.npmjs.org", word) == "npm_" + "aB3" * 12
    assert here.ask("pypi.example.org", "GET", "/", {"Authorization": f"Bearer {word}"})[0] == 403
    for name, user, value in (("netrc", "password ", "hunter2-hunter2"), ("pip", "https://me:", "p@ss-word-1")):
        word = here.inside(name).partition(user)[2].partition("@")[0].strip()
        basic = base64.b64encode(f"me:{word}".encode()).decode()
        here.ask("pypi.example.org", "GET", "/simple/x/", {"Authorization": f"Basic {basic}"})
        got = dict(here.lab.origins["pypi.example.org"].seen[-1]["headers"])["authorization"]
        assert base64.b64decode(got.removeprefix("Basic ")) == f"me:{value}".encode()
