"""Errors on the wire: the codes, and the way from an exception to an error response and back.

docs/rpc.md has the same table of codes, and a test keeps the two in step.
"""

from __future__ import annotations

import errno
from typing import Any

from sandbox import errors
from sandbox.errors import Message
from sandbox.rpc.translatable import pack, unpack

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
CONFIG = -32007  # the configuration is invalid
CANCELLED = -32008
BUSY = -32009  # too many requests or too many bytes at once
LINE_TOO_LONG = -32010
NO_SUCH_REQUEST = -32011  # `input`, `signal`, `resize`, `cancel` of a request that is not running
TOO_LARGE = -32012  # a file or an output that does not fit in one message
OTHER = -32099


class Fault(Exception):
    """An error response: code, message (a template and its values) and, for programs, data."""

    def __init__(self, code: int, message: str, /, *, data: dict[str, Any] | None = None, **values: object) -> None:
        self.message = Message(message, **values) if values else message
        super().__init__(self.message)
        self.code = code
        self.data = data or {}

    def plain(self) -> dict[str, Any]:
        """The value of `error` in the response."""
        return {"code": self.code, "message": str(self), "data": {**self.data, **pack(self.message)}}


def to_fault(problem: BaseException) -> Fault:
    """`problem` as an error response.

    Our own errors keep their message. For any other, only the name of its class is sent: its message might hold a
    secret.
    """
    if isinstance(problem, Fault):
        return problem
    if isinstance(problem, errors.SandboxError):
        return _Ours(problem)
    if isinstance(problem, OSError) and problem.errno is not None:
        name = errno.errorcode.get(problem.errno, "")
        return _File(FILE, _said(problem), data={"errno": problem.errno, "name": name})
    return Fault(INTERNAL, "internal error: {kind}", kind=type(problem).__name__)


class _File(Fault):
    """An error with the operating system's message, for which there is no translation."""

    def plain(self) -> dict[str, Any]:
        return {"code": self.code, "message": str(self), "data": self.data}


class _Ours(Fault):
    """One of our own errors. Its text can contain more than its message: the rule, or the place in a file."""

    def __init__(self, problem: errors.SandboxError) -> None:
        code, more = _told(problem)
        super().__init__(code, str(problem), data={"kind": type(problem).__name__, **more})
        match problem:
            case errors.ConfigError():
                self.message = problem.problem
            case errors.Denied():
                self.message = problem.reason
            case _:
                self.message = errors.message_of(problem)


def _told(problem: errors.SandboxError) -> tuple[int, dict[str, Any]]:
    """The error's code, and what `data` contains besides the message."""
    match problem:
        case errors.ConfigError():
            where = {"path": problem.path, "file": problem.file, "line": problem.line}
            return CONFIG, {name: value for name, value in where.items() if value}
        case errors.Denied():
            return DENIED, {"rule": problem.rule, "reason": str(problem.reason)}
        case errors.CommandError():
            return COMMAND, {"exit_code": problem.exit_code}
        case errors.SandboxClosed():
            return CLOSED, {}
        case errors.EngineUnavailable() | errors.WallError() | errors.LimitUnavailable():
            return NOT_STARTED, {}
        case errors.InvalidArgument():
            return INVALID_PARAMS, {}
    return OTHER, {}


def _said(problem: OSError) -> str:
    words = problem.strerror or type(problem).__name__
    return f"{words}: {problem.filename}" if problem.filename is not None else words


# -- for the client: from an error response to an exception

_KINDS: dict[str, type[errors.SandboxError]] = {
    kind.__name__: kind
    for kind in (
        errors.EngineUnavailable, errors.WallError, errors.LimitUnavailable, errors.InvalidArgument,
        errors.SandboxClosed, errors.NotFound, errors.GuestError, errors.SandboxError,
    )
}  # fmt: skip


class RpcError(errors.SandboxError):
    """An error response that matches none of our other exceptions. docs/rpc.md lists the values of `code`."""

    def __init__(self, code: int, message: str, /, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def to_exception(error: dict[str, Any]) -> Exception:
    """The exception that `error` stands for: as `Sandbox` raises it, with the same template and values."""
    code, text = error.get("code"), str(error.get("message", ""))
    data = error.get("data")
    more: dict[str, Any] = data if isinstance(data, dict) else {}
    kind = str(more.get("kind", ""))
    carried = unpack(more)
    message = carried if carried is not None and str(carried) in text else text
    if code == CONFIG:
        return _config_error(message, more)
    if code == DENIED:
        return errors.Denied(more.get("rule", ""), carried if carried is not None else more.get("reason", text))
    if code == COMMAND:
        return errors.CommandError(message, exit_code=more.get("exit_code", 127))
    if code == FILE and isinstance(more.get("errno"), int):
        reason, _, path = text.partition(": ")
        return OSError(more["errno"], reason, path or None)
    if kind in _KINDS:
        return _KINDS[kind](message)
    if code in (CLOSED, NOT_CREATED):
        return errors.SandboxClosed(message)
    return RpcError(code if isinstance(code, int) else OTHER, message, data)


def _config_error(message: str, more: dict[str, Any]) -> errors.ConfigError:
    if not isinstance(message, Message):  # from another version: the text contains everything
        problem = errors.ConfigError(message)
        problem.path = ""
        problem.at = more.get("path", "")
        return problem
    file, line = more.get("file"), more.get("line")
    return errors.ConfigError(message, path=more.get("path", ""), file=file, line=line)
