"""An OAuth server on the loopback, behind a `Lab`'s origin: it rotates refresh tokens, as the strict ones do."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from tests.network.lab import Lab, Origin

AUTH, API = "other.example.com", "api.example.com"


def jwt(**claims: Any) -> str:
    def part(data: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256', 'typ': 'JWT'})}.{part(claims)}.{'Sg' * 40}"


def token(kind: str, number: int) -> str:
    return f"sk-ant-{kind}01-{number:04d}" + "aB3xY7" * 14


class Authority:
    """Answers `POST /oauth/token`. `more` is added to each answer; `refusing` refuses."""

    def __init__(self, origin: Origin) -> None:
        self.number = 1
        self.good = {token("ort", 1)}
        self.asked: list[dict[str, Any]] = []
        self.more: dict[str, Any] = {}
        self.refusing = False
        self.zipped = False
        self.form = False
        self.jwts = False
        self.hold: threading.Event | None = None
        self.entered = threading.Event()
        self._lock = threading.Lock()
        origin.answer = self.answer

    def answer(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        fields = dict(headers)
        if not target.startswith("/oauth/token"):
            text = {"target": target, "headers": headers, "body": body.decode("latin-1")}
            return 200, [("Content-Type", "application/json")], json.dumps(text).encode()
        kind = fields.get("content-type", "")
        asked = json.loads(body) if "json" in kind else dict(parse_qsl(body.decode()))
        self.asked.append(asked)
        self.entered.set()
        status, said = self._granted(asked)
        content, more = json.dumps(said).encode(), [("Set-Cookie", f"session={token('oat', 99)}")]
        if self.zipped:
            content, more = gzip.compress(content), [*more, ("Content-Encoding", "gzip")]
        return status, [("Content-Type", "application/json"), *more], content

    def _granted(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            if asked.get("grant_type") == "refresh_token":
                if self.refusing or asked.get("refresh_token") not in self.good:
                    return 400, {"error": "invalid_grant", "error_description": "Refresh token not found or invalid"}
                self.good.discard(asked["refresh_token"])
            self.number += 1
            self.good.add(token("ort", self.number))
            access = (
                jwt(exp=1900000000 + self.number, chatgpt_account_id="acc-1")
                if self.jwts
                else token("oat", self.number)
            )
            return 200, {
                "token_type": "Bearer",
                "access_token": access,
                "refresh_token": token("ort", self.number),
                "expires_in": 28800,
                "scope": "user:inference user:profile",
                **self.more,
            }


def entry(file: Path, **more: Any) -> dict[str, Any]:
    """A credential of Claude's kind, for the lab's hosts."""
    return {
        "file": str(file),
        "format": "json",
        "fields": {
            "claudeAiOauth.accessToken": {"kind": "access", "hosts": [API]},
            "claudeAiOauth.refreshToken": {"kind": "refresh", "hosts": [AUTH], "in": ["body"]},
        },
        "keep": ["claudeAiOauth.subscriptionType", "claudeAiOauth.scopes.*"],
        "refresh": {
            "hosts": [AUTH],
            "paths": ["/oauth/token"],
            "expires": "claudeAiOauth.expiresAt",
            "scope": "claudeAiOauth.scopes",
            "keep": ["account.*"],
        },
        **more,
    }


def write(file: Path, number: int = 1, **more: Any) -> None:
    """The person's own file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    oauth = {
        "accessToken": token("oat", number),
        "refreshToken": token("ort", number),
        "expiresAt": 1700000000000,
        "scopes": ["user:inference"],
        "subscriptionType": "max",
        **more,
    }
    file.write_text(json.dumps({"claudeAiOauth": oauth, "other": {"kept": 1}}, indent=2))
    file.chmod(0o600)


def inside(lab: Lab) -> dict[str, Any]:
    """The file as a tenant of the lab's gate has it."""
    assert lab.logins is not None
    [login] = lab.logins.logins
    text = login.inside()
    assert text is not None
    found: dict[str, Any] = json.loads(text)
    return found


def refresh(lab: Lab, placeholder: str, *, form: bool = False, target: str = "/oauth/token", **more: Any) -> Any:
    """What Claude does when its access token is about to end."""
    from urllib.parse import urlencode

    lab.host = AUTH
    asked = {"grant_type": "refresh_token", "refresh_token": placeholder, "client_id": "me", **more}
    kind = "application/x-www-form-urlencoded" if form else "application/json"
    body = urlencode(asked).encode() if form else json.dumps(asked).encode()
    status, headers, content = lab.ask("POST", target, {"Content-Type": kind}, body)
    try:
        return status, headers, json.loads(content)
    except ValueError:
        return status, headers, content
