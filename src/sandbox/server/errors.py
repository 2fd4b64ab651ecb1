"""An exception as an HTTP answer: the status, and a body that says what was wrong and where."""

from __future__ import annotations

import errno
import re
from typing import Any

import msgspec
from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException, ValidationException

from sandbox import errors
from sandbox.manager.states import WrongState
from sandbox.rpc import errors as rpc
from sandbox.server.refusal import Refusal


class Problem(msgspec.Struct, omit_defaults=True):
    """`code` is for programs, `message` for people; `field` names the part of the request that was wrong."""

    code: str
    message: str
    field: str | None = None
    data: dict[str, Any] = {}


class Failure(msgspec.Struct):
    """The body of every answer with a status of 400 or more."""

    error: Problem


_MISSING = re.compile(r"Missing required \w+ parameter '(\w+)'")
_NO_FIELD = re.compile(r"Object (?:missing required|contains unknown) field `([^`]*)`")
_BY_CODE = {
    rpc.CONFIG: (400, "config"),
    rpc.INVALID_PARAMS: (400, "invalid"),
    rpc.COMMAND: (400, "command"),
    rpc.CLOSED: (409, "closed"),
    rpc.NOT_CREATED: (409, "closed"),
    rpc.DENIED: (403, "denied"),
    rpc.NOT_STARTED: (503, "unavailable"),
    rpc.BUSY: (429, "busy"),
    rpc.TOO_LARGE: (413, "too_large"),
    rpc.INTERNAL: (500, "internal"),
}
_BY_ERRNO = {
    errno.ENOENT: 404,
    errno.EACCES: 403,
    errno.EPERM: 403,
    errno.EROFS: 403,
    errno.EEXIST: 409,
    errno.ENOTEMPTY: 409,
    errno.EISDIR: 409,
    errno.ENOTDIR: 409,
    errno.EBUSY: 409,
    errno.EFBIG: 413,
    errno.ENOSPC: 507,
    errno.ECONNREFUSED: 502,
    errno.ETIMEDOUT: 504,
}


def told(problem: BaseException) -> tuple[int, Problem]:
    """Status and body. For an exception that is neither a SandboxError nor an OSError, only its type is sent: its
    message might hold a secret."""
    if isinstance(problem, Refusal):
        return problem.status, Problem(problem.word, problem.message, field=problem.field, data=problem.data)
    if isinstance(problem, errors.Denied) and problem.rule == "kill-switch":
        return 409, Problem("kill_switch", str(problem.reason), data=_carried(problem))
    if isinstance(problem, WrongState):
        return 409, Problem("wrong_state", str(problem), data={"state": problem.state})
    if isinstance(problem, errors.NotFound):
        return 404, Problem("not_found", str(problem), data=_carried(problem))
    if isinstance(problem, rpc.RpcError):
        status, code = _BY_CODE.get(problem.code, (409, "conflict"))
        return status, Problem(code, str(problem))
    fault = rpc.to_fault(problem)
    data = fault.plain().get("data", {})
    if fault.code == rpc.FILE:
        return _BY_ERRNO.get(data["errno"], 400), Problem("file", str(fault), data=data)
    status, code = _BY_CODE.get(fault.code, (409, "conflict"))
    field = getattr(problem, "path", None) or getattr(problem, "argument", None)
    return status, Problem(code, str(fault), field=field, data=data)


def _carried(problem: errors.SandboxError) -> dict[str, Any]:
    return dict(rpc.to_fault(problem).plain().get("data", {}))


def answer(_: Request[Any, Any, Any], problem: Exception) -> Response[Failure]:
    """The handler for every exception that a route raises."""
    headers: dict[str, str] = {}
    if isinstance(problem, HTTPException):
        headers = dict(problem.headers or {})
    if isinstance(problem, HTTPException) and not isinstance(problem, Refusal):
        status, body = problem.status_code, _of_litestar(problem)
    else:
        status, body = told(problem)
        if status == 500:
            _print(problem)
    return Response(Failure(body), status_code=status, headers=headers, media_type=MediaType.JSON)


def _of_litestar(problem: HTTPException) -> Problem:
    words = {400: "invalid", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed"}
    code = words.get(problem.status_code, "too_large" if problem.status_code == 413 else "error")
    if isinstance(problem, ValidationException) and isinstance(problem.extra, list) and problem.extra:
        first = problem.extra[0]
        if isinstance(first, dict):
            message = str(first.get("message", problem.detail))
            if message == "'data'":  # what Litestar says of an empty body
                return Problem("invalid", "the request has no body; it needs a JSON object", field="body")
            return Problem("invalid", message, field=_field(str(first.get("key") or ""), message))
    missing = _MISSING.match(problem.detail)
    return Problem(code, problem.detail, field=missing[1] if missing else None)


def _field(key: str, message: str) -> str | None:
    """The field that a message is about: for one that is missing or unknown, Litestar names the object around it."""
    named = _NO_FIELD.search(message)
    if named is None:
        return key or None
    around = key.removeprefix("data").lstrip(".")
    return f"{around}.{named[1]}" if around else named[1]


def _print(problem: Exception) -> None:
    """Prints the traceback on the server's stderr, for the owner; the client is sent only the type."""
    import traceback

    traceback.print_exception(problem)
