"""A request that is answered with a refusal, wherever that is noticed."""

from __future__ import annotations

from typing import Any

from litestar.exceptions import HTTPException, WebSocketException


class Refusal(HTTPException, WebSocketException):
    """A request that goes no further. `word` is for programs, `message` for people.

    Litestar's own kinds, so that a WebSocket gets status and reason, too: `code` is the one it is closed with.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None, *, field: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(detail=message, status_code=status, headers=headers or {})
        self.status, self.word, self.message = status, code, message
        self.code = 4000 + status
        self.field, self.data = field, data or {}

    def body(self) -> dict[str, Any]:
        """What the answer says."""
        return {"error": {"code": self.word, "message": self.message}}
