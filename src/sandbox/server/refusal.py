"""A request that is answered with a refusal, wherever that is noticed."""

from __future__ import annotations

from litestar.exceptions import HTTPException


class Refusal(HTTPException):
    """A request that goes no further. Litestar's own kind, so that a WebSocket is told status and reason, too."""

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None, *, field: str | None = None
    ) -> None:
        super().__init__(detail=message, status_code=status, headers=headers or {})
        self.status, self.code, self.message = status, code, message
        self.field = field
