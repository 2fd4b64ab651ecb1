"""How the gate, the HTTP server and the command line talk to the signer. Imports nothing heavy."""

from __future__ import annotations

import socket
from typing import Any

from sandbox.errors import Denied, NotFound, SandboxError
from sandbox.signing import paths, strict_json

PATIENCE = 330.0  # seconds: longer than the longest wait for a person


def ask(message: dict[str, Any]) -> dict[str, Any]:
    """Sends a request to the signer. Returns its answer. Blocks. Raises Denied, NotFound, SandboxError."""
    return _asked(paths.ask_socket(), message)


def decide(message: dict[str, Any]) -> dict[str, Any]:
    """Sends a person's decision to the signer. Returns its answer. Raises Denied, NotFound, SandboxError."""
    return _asked(paths.approve_socket(), message)


def owner() -> dict[str, str]:
    """The credential of the person at this machine. Raises SandboxError when no signer has run."""
    try:
        with open(paths.approver_secret(), encoding="ascii") as file:
            return {"secret": file.read(256).strip()}
    except OSError:
        raise not_running() from None


def not_running() -> SandboxError:
    return SandboxError("no signer runs; its owner starts it with `sandbox sign serve`")


def _asked(path: str, message: dict[str, Any]) -> dict[str, Any]:
    try:
        with paths.connect(path, PATIENCE) as line:
            return _exchange(line, message)
    except (OSError, strict_json.NotJson):
        raise not_running() from None


def _exchange(line: socket.socket, message: dict[str, Any]) -> dict[str, Any]:
    with line.makefile("rwb") as stream:
        stream.write(strict_json.dumps(message) + b"\n")
        stream.flush()
        told = strict_json.loads(stream.readline(16 * 2**20), 16 * 2**20)
    if "error" in told and "message" in told and "policyDecision" not in told:
        kind, text = told["error"], str(told["message"])
        if kind == "denied":
            raise Denied(str(told["rule"]), text)
        raise NotFound(text) if kind == "not_found" else SandboxError(text)
    return dict(told)
