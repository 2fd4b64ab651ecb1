"""Connect-RPC over HTTP/1.1 with JSON: the protocol between E2B's clients and the daemon in a sandbox.

A unary call is a POST of one message. A stream is a body of envelopes: one byte of flags, four of length, the message.
The last envelope of an answer has the flag END and says how the call ended.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
from litestar import MediaType, Request, Response
from litestar.response import Stream

from sandbox.errors import CommandError, InvalidArgument, NotFound, SandboxClosed
from sandbox.server.decoding import decode
from sandbox.server.e2b.refusals import answer as plain_answer
from sandbox.server.errors import told
from sandbox.server.refusal import Refusal

T = TypeVar("T")
MESSAGE_MOST = 8 * 2**20
COMPRESSED, END = 1, 2
UNARY, STREAMED = "application/json", "application/connect+json"
_TIMEOUT = re.compile(r"[0-9]{1,10}")
_STATUS = {
    "canceled": 499, "unknown": 500, "invalid_argument": 400, "deadline_exceeded": 504, "not_found": 404,
    "already_exists": 409, "permission_denied": 403, "resource_exhausted": 429, "failed_precondition": 400,
    "unimplemented": 501, "internal": 500, "unavailable": 503, "unauthenticated": 401,
}  # fmt: skip
_CODES = {
    400: "invalid_argument", 401: "unauthenticated", 403: "permission_denied", 404: "not_found",
    409: "failed_precondition",
    413: "resource_exhausted", 415: "unimplemented", 429: "resource_exhausted", 500: "internal", 501: "unimplemented",
    502: "unavailable", 503: "unavailable", 504: "deadline_exceeded", 507: "resource_exhausted",
}  # fmt: skip


class Failed(Exception):
    """Ends the call with this code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def failure(problem: BaseException) -> Failed:
    """Any exception as a Connect error. For one that nobody expects, only its type is sent, as in `told`."""
    if isinstance(problem, Failed):
        return problem
    if isinstance(problem, msgspec.MsgspecError | InvalidArgument | CommandError):
        return Failed("invalid_argument", str(problem))
    if isinstance(problem, NotFound):
        return Failed("not_found", str(problem))
    if isinstance(problem, SandboxClosed):
        return Failed("unavailable", "the sandbox has ended")
    status, body = told(problem)
    code = "already_exists" if isinstance(problem, FileExistsError) else _CODES.get(status, "unknown")
    return Failed(code, body.message)


def answer(request: Request[Any, Any, Any], problem: Exception) -> Response[Any]:
    """The handler for exceptions of a unary call."""
    failed = _printed(problem)
    if isinstance(problem, Refusal) and problem.status == 502:
        return plain_answer(request, problem)  # in the form of E2B's proxy
    body = {"code": failed.code, "message": failed.message}
    return Response(body, status_code=_STATUS[failed.code], media_type=MediaType.JSON)


def answer_stream(request: Request[Any, Any, Any], problem: Exception) -> Response[Any]:
    """The handler for exceptions before a stream begins: the answer is a single message with the flag END."""
    if isinstance(problem, Refusal) and problem.status == 502:
        return plain_answer(request, problem)
    return Response(envelope(_last(_printed(problem)), END), status_code=200, media_type=STREAMED)


def _printed(problem: Exception) -> Failed:
    """As `failure`; prints an internal error on the server's stderr, for the owner."""
    failed = failure(problem)
    if failed.code == "internal":
        import traceback

        traceback.print_exception(problem)
    return failed


# -- requests


def check(request: Request[Any, Any, Any], kind: str) -> None:
    """Raises Failed for a request in a form that is not supported here."""
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given != kind:
        raise Failed("unimplemented", f"send {kind}, not {given[:80] or 'nothing'}")
    for name in ("content-encoding", "connect-content-encoding"):
        if request.headers.get(name, "identity") != "identity":
            raise Failed("unimplemented", "messages are not compressed here")
    if request.headers.get("connect-protocol-version", "1") != "1":
        raise Failed("invalid_argument", "only version 1 of the Connect protocol is spoken here")


def deadline(request: Request[Any, Any, Any]) -> float | None:
    """The client's timeout for the call, in seconds. Raises Failed."""
    text = request.headers.get("connect-timeout-ms")
    if text is None:
        return None
    if not _TIMEOUT.fullmatch(text):
        raise Failed("invalid_argument", "Connect-Timeout-Ms is a number of milliseconds")
    return max(1, int(text)) / 1000


async def read(request: Request[Any, Any, Any], type: type[T]) -> T:
    """The message of a unary call."""
    check(request, UNARY)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MESSAGE_MOST:
            raise Failed("resource_exhausted", f"a message has at most {MESSAGE_MOST} bytes")
    return decode(bytes(body), type=type)


async def envelopes(request: Request[Any, Any, Any], type: type[T]) -> AsyncIterator[T]:
    """The messages of a stream, as they arrive. Raises Failed, and what decoding raises."""
    check(request, STREAMED)
    held = bytearray()
    async for piece in request.stream():
        held += piece
        while (message := _taken(held)) is not None:
            yield decode(message, type=type)
    if held:
        raise Failed("invalid_argument", "the last message is not whole")


def _taken(held: bytearray) -> bytes | None:
    """Removes one whole message from the beginning. The length is checked before anything is stored for it."""
    if len(held) < 5:
        return None
    flags, length = held[0], int.from_bytes(held[1:5], "big")
    if flags & COMPRESSED:
        raise Failed("unimplemented", "messages are not compressed here")
    if flags:
        raise Failed("invalid_argument", "a client's messages have no flags")
    if length > MESSAGE_MOST:
        raise Failed("resource_exhausted", f"a message has at most {MESSAGE_MOST} bytes")
    if len(held) < 5 + length:
        return None
    message = bytes(held[5 : 5 + length])
    del held[: 5 + length]
    return message


async def only(request: Request[Any, Any, Any], type: type[T]) -> T:
    """The one message of a call whose answer is a stream."""
    found: list[T] = []
    async for message in envelopes(request, type):
        if found:
            raise Failed("invalid_argument", "there is one message in such a request")
        found.append(message)
    if not found:
        raise Failed("invalid_argument", "the request has no message")
    return found[0]


# -- answers


def envelope(message: object, flags: int = 0) -> bytes:
    """One message of a stream."""
    data = msgspec.json.encode(message)
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


def streamed(messages: AsyncIterator[object]) -> Stream:
    """An answer that streams those messages. An exception becomes the last message."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return Stream(_enveloped(messages), media_type=STREAMED, status_code=200, headers=headers)


async def _enveloped(messages: AsyncIterator[object]) -> AsyncIterator[bytes]:
    try:
        async for message in messages:
            yield envelope(message)
        yield envelope({}, END)
    except Exception as problem:  # noqa: BLE001 - the status was sent already; the error becomes the last message
        yield envelope(_last(problem), END)
    finally:
        await messages.aclose()  # type: ignore[attr-defined]


def _last(problem: Exception) -> dict[str, Any]:
    failed = failure(problem)
    return {"error": {"code": failed.code, "message": failed.message}}
