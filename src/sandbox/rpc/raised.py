"""Error responses as the exceptions they stand for: the way back from `faults.fault`."""

from __future__ import annotations

from typing import Any

from sandbox import errors
from sandbox.rpc import faults

_KINDS = {kind.__name__: kind for kind in (errors.EngineUnavailable, errors.WallError, errors.LimitUnavailable)}
_OTHERS = {kind.__name__: kind for kind in (errors.NotFound, errors.InvalidArgument, errors.GuestError)}


class RpcError(errors.SandboxError):
    """An error response without a counterpart among our own exceptions. `code` is in the table of docs/rpc.md."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def raised(error: dict[str, Any]) -> Exception:
    """The exception that `error` stands for."""
    code, message = error.get("code"), str(error.get("message", ""))
    data = error.get("data")
    more: dict[str, Any] = data if isinstance(data, dict) else {}
    match code:
        case faults.CONFIG:
            problem = errors.ConfigError(message)
            problem.path = more.get("path", "")
            return problem
        case faults.DENIED:
            return errors.Denied(more.get("rule", ""), more.get("reason", message))
        case faults.COMMAND:
            return errors.CommandError(message, exit_code=more.get("exit_code", 127))
        case faults.CLOSED | faults.NOT_CREATED:
            return errors.SandboxClosed(message)
        case faults.NOT_STARTED:
            return _KINDS.get(more.get("kind", ""), errors.SandboxError)(message)
        case faults.FILE if isinstance(more.get("errno"), int):
            words, _, path = message.partition(": ")
            return OSError(more["errno"], words, path or None)
        case faults.OTHER if more.get("kind") in _OTHERS:
            return _OTHERS[more["kind"]](message)
    return RpcError(code if isinstance(code, int) else faults.OTHER, message, data)
