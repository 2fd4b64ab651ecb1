"""The exception for a request that is refused."""

from __future__ import annotations

from typing import Any

from litestar.exceptions import HTTPException, WebSocketException


class Refusal(HTTPException, WebSocketException):
    """Refuses the request. `word` is for programs, `message` for people.

    Derived from Litestar's exceptions, so that a WebSocket gets status and reason, too: it is closed with `code`.
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
        """The body of the answer."""
        return {"error": {"code": self.word, "message": self.message}}
