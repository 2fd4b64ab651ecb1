"""Credentials of E2B clients: an API key, a sandbox's access token, or a signed URL.

An API key is one of our bearer tokens. For each sandbox and bearer token there is one access token, derived from both
with a key that lives as long as the server. So nothing is stored, revoking the bearer token ends it, and it opens only
that sandbox.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from typing import Any
from urllib.parse import parse_qsl

from sandbox.server.e2b.hosts import addressed
from sandbox.server.e2b.refusals import E2bRefusal
from sandbox.server.refusal import Refusal
from sandbox.server.scopes import Access
from sandbox.server.tokens import Tokens

SURFACE = "e2b"  # marks the routes that accept a sandbox's access token
FILES = "/files"
_KEY, _TOKEN, _TRAFFIC = b"x-api-key", b"x-access-token", b"e2b-traffic-access-token"
ONCE = (_KEY, _TOKEN, _TRAFFIC, b"e2b-sandbox-id", b"e2b-sandbox-port")  # headers that may occur only once
_FORM = re.compile(r"sbe_((?:file-)?[0-9a-f]{8})_([0-9a-f]{64})")
_SIGNATURE = re.compile(r"v1_[A-Za-z0-9+/]{43}")
_EXPIRES = re.compile(r"-?[0-9]{1,12}")
_MOST_QUERY = 16_384
_OPERATIONS = {"GET": "read", "POST": "write"}


class Credentials:
    """Used only from the event loop."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._key = secrets.token_bytes(32)
        self._signers: dict[str, set[str]] = {}  # sandbox -> ids of tokens that were given an access token for it

    def access_token(self, sandbox: str, access: Access) -> str:
        """The access token for that sandbox and this access."""
        self._signers.setdefault(sandbox, set()).add(access.token)
        return self._made(sandbox, access.token)

    def forget(self, living: set[str]) -> None:
        """Makes signatures for sandboxes that have ended invalid."""
        self._signers = {sandbox: ids for sandbox, ids in self._signers.items() if sandbox in living}

    def offered(self, scope: Any, headers: dict[bytes, bytes]) -> bool:
        """Whether the request has one of these credentials."""
        return any(name in headers for name in (_KEY, _TOKEN, _TRAFFIC)) or _signed(scope)

    def check(self, scope: Any, headers: dict[bytes, bytes]) -> Access | None:
        """The request's access; None when the credential is wrong. Raises E2bRefusal for an expired signature."""
        if _KEY in headers:
            return self._tokens.check(headers[_KEY].decode("latin-1").strip().removeprefix("e2b_"))
        for name in (_TOKEN, _TRAFFIC):
            if name in headers:
                return self._of_sandbox(addressed(scope), headers[name].decode("latin-1"))
        return self._of_signature(scope)

    def _made(self, sandbox: str, token: str) -> str:
        digest = hmac.digest(self._key, f"{sandbox} {token}".encode(), "sha256")
        return f"sbe_{token}_{digest.hex()}"

    def _of_sandbox(self, sandbox: str, given: str) -> Access | None:
        form = _FORM.fullmatch(given)
        if form is None or not sandbox or not hmac.compare_digest(self._made(sandbox, form[1]), given):
            return None
        return self._narrowed(sandbox, form[1])

    def _narrowed(self, sandbox: str, token: str) -> Access | None:
        whole = self._tokens.access(token)
        if whole is None:
            return None
        return Access(whole.name, whole.scopes, frozenset([sandbox]), token, SURFACE)

    def _of_signature(self, scope: Any) -> Access | None:
        """Finds the sandbox by trying its tokens: where all sandboxes share an address, a signed URL names none."""
        try:
            asked = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=16))
        except ValueError:  # too many fields
            return None
        given, expires = asked.get("signature", ""), asked.get("signature_expiration")
        if not _SIGNATURE.fullmatch(given) or (expires is not None and not _EXPIRES.fullmatch(expires)):
            return None
        words = [asked.get("path", ""), _OPERATIONS[scope["method"]], asked.get("username", "")]
        found: tuple[str, str] | None = None
        for sandbox, ids in self._signers.items():
            for token in ids:
                raw = ":".join([*words, self._made(sandbox, token), *([expires] if expires is not None else [])])
                digest = base64.b64encode(hashlib.sha256(raw.encode("utf-8", "replace")).digest()).decode().rstrip("=")
                if hmac.compare_digest(f"v1_{digest}", given):
                    found = sandbox, token
        if found is None:
            return None
        if expires is not None and int(expires) < time.time():
            raise E2bRefusal(401, "signature is already expired")
        scope["e2b.sandbox"] = found[0]
        access = self._narrowed(*found)
        return None if access is None else Access(
            access.name, access.scopes & {"files"}, access.sandboxes, access.token, access.surface
        )  # fmt: skip


def in_their_words(scope: Any, refused: Refusal) -> Refusal:
    """The refusal, in the form that the client can read: E2B's for an E2B client."""
    if isinstance(refused, E2bRefusal) or not any(name in ONCE for name, _ in scope["headers"]):
        return refused
    told = E2bRefusal(refused.status, refused.message)
    told.headers = refused.headers
    return told


def _signed(scope: Any) -> bool:
    query: bytes = scope.get("query_string", b"")
    return (
        scope["type"] == "http"
        and scope["path"] == FILES
        and scope["method"] in _OPERATIONS
        and b"signature=" in query
        and len(query) <= _MOST_QUERY
    )
