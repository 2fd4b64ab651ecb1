"""Error codes of the protocol. docs/rpc.md has the same table, and a test holds them together."""

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
        """As it stands under `error`."""
        body: dict[str, Any] = {"code": self.code, "message": str(self)}
        if self.data:
            body["data"] = self.data
        return body


def fault(problem: BaseException) -> Fault:
    """`problem` as an error response. Our errors keep their words; a bug keeps its kind and nothing else, because
    its words might hold what must not leave (a secret in a traceback)."""
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
        case errors.SandboxError():
            return Fault(OTHER, str(problem), {"kind": type(problem).__name__})
        case OSError() if problem.errno is not None:
            name = errno.errorcode.get(problem.errno, "")
            return Fault(FILE, _said(problem), {"errno": problem.errno, "name": name})
    return Fault(INTERNAL, f"internal error: {type(problem).__name__}")


def _said(problem: OSError) -> str:
    words = problem.strerror or type(problem).__name__
    return f"{words}: {problem.filename}" if problem.filename is not None else words
