"""Errors on the wire: the codes, and the way from an exception to an error response and back.

docs/rpc.md has the same table of codes, and a test holds the two together.
"""

from __future__ import annotations

import errno
from typing import Any

from sandbox import errors

PARSE = -32700  # not JSON, not UTF-8
INVALID_REQUEST = -32600  # JSON, but not a request; or an id that is still in use
NO_SUCH_METHOD = -32601
INVALID_PARAMS = -32602
INTERNAL = -32603

NOT_STARTED = -32000  # the sandbox could not be started
NOT_CREATED = -32001  # no `create` yet
ALREADY_CREATED = -32002
CLOSED = -32003  # the sandbox has ended
COMMAND = -32004  # the command never ran
FILE = -32005  # an operating-system error about a path inside
DENIED = -32006  # a policy refused
CONFIG = -32007  # the configuration makes no sense
CANCELLED = -32008
BUSY = -32009  # too many requests, or too many bytes, at a time
LINE_TOO_LONG = -32010
NO_SUCH_REQUEST = -32011  # `input`, `signal`, `resize`, `cancel` of a request that is not running
TOO_LARGE = -32012  # a file or an output that does not fit one message
OTHER = -32099


class Fault(Exception):
    """An error response: code, message and, for programs, data."""

    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    def plain(self) -> dict[str, Any]:
        """The value of `error` in the response."""
        body: dict[str, Any] = {"code": self.code, "message": str(self)}
        if self.data:
            body["data"] = self.data
        return body


def to_fault(problem: BaseException) -> Fault:
    """`problem` as an error response.

    An error of ours keeps its message. Of any other only the kind is told: its message might hold a secret.
    """
    match problem:
        case Fault():
            return problem
        case errors.ConfigError():
            return Fault(CONFIG, str(problem), {"path": problem.path} if problem.path else None)
        case errors.Denied():
            return Fault(DENIED, str(problem), {"rule": problem.rule, "reason": problem.reason})
        case errors.CommandError():
            return Fault(COMMAND, str(problem), {"exit_code": problem.exit_code})
        case errors.SandboxClosed():
            return Fault(CLOSED, str(problem))
        case errors.EngineUnavailable() | errors.WallError() | errors.LimitUnavailable():
            return Fault(NOT_STARTED, str(problem), {"kind": type(problem).__name__})
        case errors.InvalidArgument():
            return Fault(INVALID_PARAMS, str(problem), {"kind": type(problem).__name__})
        case errors.SandboxError():
            return Fault(OTHER, str(problem), {"kind": type(problem).__name__})
        case OSError() if problem.errno is not None:
            name = errno.errorcode.get(problem.errno, "")
            return Fault(FILE, _said(problem), {"errno": problem.errno, "name": name})
    return Fault(INTERNAL, f"internal error: {type(problem).__name__}")


def _said(problem: OSError) -> str:
    words = problem.strerror or type(problem).__name__
    return f"{words}: {problem.filename}" if problem.filename is not None else words


# -- the client's way back

_KINDS = {kind.__name__: kind for kind in (errors.EngineUnavailable, errors.WallError, errors.LimitUnavailable)}
_OTHERS = {kind.__name__: kind for kind in (errors.NotFound, errors.InvalidArgument, errors.GuestError)}


class RpcError(errors.SandboxError):
    """An error response without a counterpart among our own exceptions. `code` is in the table of docs/rpc.md."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def to_exception(error: dict[str, Any]) -> Exception:
    """The exception that `error` stands for."""
    code, message = error.get("code"), str(error.get("message", ""))
    data = error.get("data")
    more: dict[str, Any] = data if isinstance(data, dict) else {}
    kind = more.get("kind", "")
    if code == CONFIG:
        problem = errors.ConfigError(message)
        problem.path = more.get("path", "")
        return problem
    if code == DENIED:
        return errors.Denied(more.get("rule", ""), more.get("reason", message))
    if code == COMMAND:
        return errors.CommandError(message, exit_code=more.get("exit_code", 127))
    if code in (CLOSED, NOT_CREATED):
        return errors.SandboxClosed(message)
    if code == NOT_STARTED:
        return _KINDS.get(kind, errors.SandboxError)(message)
    if code == FILE and isinstance(more.get("errno"), int):
        reason, _, path = message.partition(": ")
        return OSError(more["errno"], reason, path or None)
    if code in (OTHER, INVALID_PARAMS) and kind in _OTHERS:
        return _OTHERS[kind](message)
    return RpcError(code if isinstance(code, int) else OTHER, message, data)
