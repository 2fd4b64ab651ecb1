"""How errors are reported to E2B's clients: `{"code": status, "message": text}`."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException

from sandbox.server.errors import answer as answer_in_our_words
from sandbox.server.errors import told
from sandbox.server.refusal import Refusal

GONE = "the sandbox was not found"  # E2B's clients look for "was not found"


class E2bRefusal(Refusal):
    """A refusal in E2B's form."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, "e2b", message)

    def body(self) -> dict[str, Any]:
        return {"code": self.status, "message": self.message}


def not_supported(what: str) -> E2bRefusal:
    """The refusal for a feature of E2B that is not supported here."""
    return E2bRefusal(400, f"{what} is not supported by this server; see docs/integrations/e2b.md")


def gone() -> E2bRefusal:
    """The sandbox has ended, never existed, or is out of the token's reach. E2B's proxy answers 502 then."""
    return E2bRefusal(502, GONE)


def answer(request: Request[Any, Any, Any], problem: Exception) -> Response[Any]:
    """The handler for every exception that a route for E2B's clients raises."""
    if isinstance(problem, HTTPException) and not isinstance(problem, Refusal):
        status, message = problem.status_code, problem.detail
    elif isinstance(problem, msgspec.MsgspecError):
        status, message = 400, str(problem)
    else:
        status, body = told(problem)
        message = body.message
        if status == 500:
            answer_in_our_words(request, problem)  # prints it for the owner
    headers = dict(getattr(problem, "headers", None) or {})
    return Response(
        {"code": status, "message": message}, status_code=status, headers=headers, media_type=MediaType.JSON
    )
