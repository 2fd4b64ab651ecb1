"""The real agents with a login of theirs that has ended: they renew it and work, and no token comes in.

`make agents` installs the programs into .agents/; what is not there is skipped by name.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agents import apis
from tests.agents.conftest import Desk
from tests.agents.real import WHERE
from tests.network.credentials.oauth import jwt

pytestmark = pytest.mark.walls

JSON = [("Content-Type", "application/json")]
Answer = tuple[int, list[tuple[str, str]], bytes]


def install(desk: Desk, name: str) -> None:
    """The real program on the person's PATH."""
    directory = WHERE / name / "node_modules" / ".bin"
    if not (directory / name).exists():
        pytest.skip(f"{name} is not installed: make agents")
    desk.env["PATH"] = f"{directory}:{desk.env['PATH']}"


def serve(desk: Desk, endpoint: str, new: dict[str, Any], other: Any) -> list[bytes]:
    """The token endpoint grants `new`, everything else answers as `other` does. Returns what the endpoint was asked."""
    asked: list[bytes] = []

    def answer(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        host = {name.lower(): value for name, value in headers}["host"]
        if f"{host}{target}" == endpoint:
            asked.append(body)
            return 200, JSON, json.dumps(new).encode()
        found: Answer = other(method, target, headers, body)
        return found

    desk.world.answer = answer
    return asked


def sent(desk: Desk, host: str) -> set[str]:
    """The tokens that the host got."""
    fields = [{name.lower(): value for name, value in one["headers"]} for one in desk.world.seen]
    return {
        one["authorization"].removeprefix("Bearer ") for one in fields if one["host"] == host and "authorization" in one
    }


def kept_nowhere(desk: Desk, name: str, *tokens: str) -> bool:
    """Whether none of the tokens is in what the agent keeps, or in what it sees."""
    files = [one for one in desk.kept(name).rglob("*") if one.is_file() and not one.is_symlink()]
    seen = desk.run("run", "--profile", name, "--", "sh", "-c", "env; cat ~/.*/*.json").stdout.encode()
    assert files and seen
    return not any(token.encode() in text for token in tokens for text in (seen, *(one.read_bytes() for one in files)))


def test_claude_with_a_subscription(desk: Desk) -> None:
    install(desk, "claude")
    old = {"access": "sk-ant-oat01-" + "aB3" * 30, "refresh": "sk-ant-ort01-" + "cD4" * 30}
    new = {"access": "sk-ant-oat01-" + "eF5" * 30, "refresh": "sk-ant-ort01-" + "gH6" * 30}
    oauth = {
        "accessToken": old["access"],
        "refreshToken": old["refresh"],
        "expiresAt": 1700000000000,
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": "max",
    }
    desk.has({".claude/.credentials.json": json.dumps({"claudeAiOauth": oauth})})
    granted = {
        "token_type": "Bearer",
        "access_token": new["access"],
        "refresh_token": new["refresh"],
        "expires_in": 28800,
        "scope": "user:inference user:profile",
    }
    asked = serve(desk, "platform.claude.com/v1/oauth/token", granted, apis.anthropic("Write", {}))
    done = desk.run("claude", "-p", "say hello", timeout=120, stdin=subprocess.DEVNULL)
    assert apis.SAID in done.stdout, done.stderr
    assert old["refresh"].encode() in asked[0]
    assert sent(desk, "api.anthropic.com") == {new["access"]}
    there = json.loads((desk.home / ".claude" / ".credentials.json").read_text())["claudeAiOauth"]
    assert (there["accessToken"], there["refreshToken"]) == (new["access"], new["refresh"])
    assert there["expiresAt"] / 1000 > time.time()
    assert kept_nowhere(desk, "claude", *old.values(), *new.values())


def test_codex_with_chatgpt(desk: Desk) -> None:
    """It reads its account from the tokens, renews them and sends them. (What its backend answers then, the mock does
    not know: the run itself ends without a conversation.)"""
    install(desk, "codex")
    now = int(time.time())
    claims = {"https://api.openai.com/auth": {"chatgpt_account_id": "acc-1", "chatgpt_plan_type": "pro"}}
    old = {
        "id_token": jwt(email="me@example.org", exp=now - 10, **claims),
        "access_token": jwt(exp=now - 10, **claims),
        "refresh_token": "rt_" + "aB3" * 20,
    }
    new = {
        "id_token": jwt(email="me@example.org", exp=now + 9999, **claims),
        "access_token": jwt(exp=now + 9999, **claims),
        "refresh_token": "rt_" + "cD4" * 20,
    }
    auth = {
        "OPENAI_API_KEY": None,
        "auth_mode": "chatgpt",
        "tokens": {**old, "account_id": "acc-1"},
        "last_refresh": "2026-01-01T00:00:00Z",
    }
    desk.has({".codex/auth.json": json.dumps(auth)})
    asked = serve(desk, "auth.openai.com/oauth/token", new, lambda *_: (404, JSON, b"{}"))
    words = ("exec", "--skip-git-repo-check", "say hello")
    desk.run("codex", *words, timeout=120, stdin=subprocess.DEVNULL)
    assert old["refresh_token"].encode() in asked[0]
    assert sent(desk, "chatgpt.com") == {new["access_token"]}
    fields = [{name.lower(): value for name, value in one["headers"]} for one in desk.world.seen]
    assert "acc-1" in {one.get("chatgpt-account-id") for one in fields}
    there = json.loads((desk.home / ".codex" / "auth.json").read_text())
    assert there["tokens"] == {**new, "account_id": "acc-1"}
    assert there["last_refresh"] > "2026-01-02"
    assert kept_nowhere(desk, "codex", *old.values(), *new.values())


def gemini(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
    """Code Assist, as Gemini speaks to it with a Google account."""
    if "tokeninfo" in target:
        return 200, JSON, json.dumps({"scope": "openid", "expires_in": 3599, "aud": "x"}).encode()
    if "loadCodeAssist" in target:
        return 200, JSON, json.dumps({"currentTier": {"id": "free-tier"}, "cloudaicompanionProject": "p"}).encode()
    if "enerateContent" not in target:
        return 200, JSON, b"{}"
    choice = json.dumps({"reasoning": "simple", "model_choice": "flash"})
    text = apis.SAID if "stream" in target else choice
    part = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP", "index": 0}
    whole = json.dumps({"response": {"candidates": [part]}}).encode()
    return (200, apis.HEADERS, b"data: " + whole + b"\n\n") if "stream" in target else (200, JSON, whole)


def test_gemini_with_google(desk: Desk) -> None:
    install(desk, "gemini")
    now = int(time.time())
    old = {"access": "ya29.a0" + "aB3" * 50, "refresh": "1//0g" + "aB3" * 30}
    new = "ya29.a0" + "xY7" * 50
    creds = {
        "access_token": old["access"],
        "refresh_token": old["refresh"],
        "scope": "openid",
        "token_type": "Bearer",
        "id_token": jwt(exp=now - 10, iss="https://accounts.google.com"),
        "expiry_date": (now - 100) * 1000,
    }
    settings = {"security": {"auth": {"selectedType": "oauth-personal"}}}
    accounts = {"active": "me@example.org", "old": []}
    desk.has(
        {
            ".gemini/oauth_creds.json": json.dumps(creds),
            ".gemini/settings.json": json.dumps(settings),
            ".gemini/google_accounts.json": json.dumps(accounts),
        }
    )
    granted = {"access_token": new, "expires_in": 3599, "scope": "openid", "token_type": "Bearer"}
    asked = serve(desk, "oauth2.googleapis.com/token", granted, gemini)
    done = desk.run("gemini", "-p", "say hello", timeout=150, stdin=subprocess.DEVNULL)
    assert apis.SAID in done.stdout, done.stderr
    assert b"1%2F%2F0g" in asked[0]
    assert sent(desk, "cloudcode-pa.googleapis.com") == {new}
    there: dict[str, Any] = json.loads(Path(desk.home, ".gemini", "oauth_creds.json").read_text())
    assert (there["access_token"], there["refresh_token"]) == (new, old["refresh"])
    assert there["expiry_date"] > now * 1000
    assert kept_nowhere(desk, "gemini", *old.values(), new)


# -- logins made inside


def kept_login(desk: Desk, name: str, format: str = "json") -> Any:
    """The login that is kept outside for this project, and nowhere else."""
    found = sorted((desk.sandbox / "credentials").iterdir())
    [file] = [one for one in found if one.name.startswith(f"{name}@") and one.suffix == f".{format}"]
    assert file.stat().st_mode & 0o777 == 0o600
    return json.loads(file.read_text())


def test_claude_logs_in_inside_and_its_tokens_stay_outside(desk: Desk) -> None:
    install(desk, "claude")
    new = {"access": "sk-ant-oat01-" + "eF5" * 30, "refresh": "sk-ant-ort01-" + "gH6" * 30}
    granted = {
        "token_type": "Bearer",
        "access_token": new["access"],
        "refresh_token": new["refresh"],
        "expires_in": 28800,
        "scope": "user:inference user:profile",
        "account": {"uuid": "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "email_address": "me@example.org"},
    }
    asked = serve(desk, "platform.claude.com/v1/oauth/token", granted, apis.anthropic("Write", {}))
    with desk.screen("claude", "auth", "login") as screen:
        screen.sees("Paste code here")
        [state] = set(re.findall(r"[?&]state=([\w-]{20,64})", screen.text))
        screen.types(f"the-code-of-the-page#{state}\r")
        screen.sees("Login successful", "Logged in")
    assert b"the-code-of-the-page" in asked[0]
    done = desk.run("claude", "-p", "say hello", timeout=120, stdin=subprocess.DEVNULL)
    assert apis.SAID in done.stdout, done.stderr
    assert sent(desk, "api.anthropic.com") == {new["access"]}
    assert kept_login(desk, "claude")["claudeAiOauth"]["refreshToken"] == new["refresh"]
    assert not (desk.home / ".claude" / ".credentials.json").exists()
    assert kept_nowhere(desk, "claude", *new.values())


def test_codex_logs_in_inside_and_its_tokens_stay_outside(desk: Desk) -> None:
    install(desk, "codex")
    now = int(time.time())
    claims = {"https://api.openai.com/auth": {"chatgpt_account_id": "acc-1", "chatgpt_plan_type": "pro"}}
    new = {
        "id_token": jwt(email="me@example.org", exp=now + 9999, **claims),
        "access_token": jwt(exp=now + 9999, **claims),
        "refresh_token": "rt_" + "cD4" * 20,
    }

    def page(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        if target.endswith("/deviceauth/usercode"):
            return 200, JSON, json.dumps({"device_auth_id": "d-1", "user_code": "ABCD-1234", "interval": "1"}).encode()
        if target.endswith("/deviceauth/token"):
            code = {"authorization_code": "the-code", "code_challenge": "c" * 43, "code_verifier": "v" * 43}
            return 200, JSON, json.dumps(code).encode()
        return 404, JSON, b"{}"

    asked = serve(desk, "auth.openai.com/oauth/token", new, page)
    done = desk.run("codex", "login", "--device-auth", timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert b"the-code" in asked[0]
    desk.run("codex", "exec", "--skip-git-repo-check", "say hello", timeout=120, stdin=subprocess.DEVNULL)
    assert sent(desk, "chatgpt.com") == {new["access_token"]}
    assert kept_login(desk, "codex")["tokens"]["refresh_token"] == new["refresh_token"]
    assert not (desk.home / ".codex" / "auth.json").exists()
    assert kept_nowhere(desk, "codex", *new.values())


def test_gemini_logs_in_inside_and_its_tokens_stay_outside(desk: Desk) -> None:
    install(desk, "gemini")
    new = {"access": "ya29.a0" + "xY7" * 50, "refresh": "1//0g" + "zQ3" * 30}
    desk.has({".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": "oauth-personal"}}})})
    granted = {
        "access_token": new["access"],
        "refresh_token": new["refresh"],
        "expires_in": 3599,
        "scope": "openid",
        "token_type": "Bearer",
    }
    asked = serve(desk, "oauth2.googleapis.com/token", granted, gemini)
    with desk.screen("gemini") as screen:
        screen.sees("Enter the authorization code")
        screen.types("4/the-code-of-the-page\r")
        screen.sees("Type your message")
        screen.types("say hello")
        screen.sees("say hello")
        screen.presses("\r", lambda: re.sub(r"\s+", "", apis.SAID) in screen.text, 10)
    assert b"the-code-of-the-page" in asked[0]
    assert sent(desk, "cloudcode-pa.googleapis.com") == {new["access"]}
    assert kept_login(desk, "gemini")["refresh_token"] == new["refresh"]
    assert not (desk.home / ".gemini" / "oauth_creds.json").exists()
    assert kept_nowhere(desk, "gemini", *new.values())
