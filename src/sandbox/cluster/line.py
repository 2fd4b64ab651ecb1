"""Requests to an agent, one at a time over one connection."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from sandbox.errors import SandboxError

if TYPE_CHECKING:
    import ssl
    from typing import Self

PATIENCE = 60.0


class AgentRefused(SandboxError):
    """The agent answered, and refused the request. `status` is that of HTTP."""

    status = 0


class Line:
    """A connection to the agent at `url`. Raises OSError and http.client.HTTPException when it is gone."""

    def __init__(self, url: str, context: ssl.SSLContext, token: str, *, timeout: float = PATIENCE) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._line = http.client.HTTPSConnection(parts.hostname, parts.port, context=context, timeout=timeout)
        self._token = token

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """Sends one request; `body` is bytes, or plain data for JSON. Raises AgentRefused."""
        raw = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        known = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        self._line.request(method, path, raw, {**known, "Content-Type": kind})
        answer = self._line.getresponse()
        content = answer.read()
        if answer.status >= 300:
            refused = AgentRefused("the node refused: {problem}", problem=_message(content, answer.status))
            refused.status = answer.status
            raise refused
        return content

    def ask_json(self, method: str, path: str, body: Any = None) -> Any:
        """The same, for an answer in JSON."""
        return msgspec.json.decode(self.ask(method, path, body))

    def close(self) -> None:
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _message(content: bytes, status: int) -> object:
    try:
        return msgspec.json.decode(content)["error"]["message"]
    except (msgspec.DecodeError, LookupError, TypeError):
        return status
