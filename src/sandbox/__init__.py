"""Run code you do not trust on your own machine.

    from sandbox import Sandbox

    with Sandbox() as sb:
        print(sb.exec("python3 untrusted.py").stdout)

Names are loaded when they are first used: `import sandbox` costs nothing.
"""

from __future__ import annotations

from sandbox.wiring import Wiring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandbox.aio import AsyncSandbox
    from sandbox.async_pool import AsyncPool
    from sandbox.async_process import AsyncProcess
    from sandbox.async_session import AsyncCodeSession
    from sandbox.audit.audit_log import SandboxAuditLog
    from sandbox.audit.feed import get_audit_feed_size, query_audit_feed, subscribe_audit_feed
    from sandbox.client import Client
    from sandbox.client_pool import ClientPool
    from sandbox.config.model import Config
    from sandbox.errors import (
        CommandError,
        ConfigError,
        Denied,
        EngineUnavailable,
        GuestError,
        InvalidArgument,
        LimitUnavailable,
        NotFound,
        SandboxClosed,
        SandboxError,
        SandboxLost,
        WallError,
    )
    from sandbox.info import Ask, Checkpoint, FileInfo, GrepMatch, PatchedFile, Port, ProcessInfo, Stats
    from sandbox.manager.manager import SandboxManager
    from sandbox.network.intercept.hooks import Blocked, Hooks
    from sandbox.pool.outcome import Outcome
    from sandbox.pool.pool import Pool
    from sandbox.pool.shelf import PoolStats
    from sandbox.protocols import Process
    from sandbox.registry.api import get_sandbox, get_vm, kill_sandbox, kill_vm, list_sandboxes, list_vms
    from sandbox.result import Chunk, ExecResult
    from sandbox.rpc.errors import RpcError
    from sandbox.sandbox import Sandbox
    from sandbox.sessions.result import CodeFailure, CodeResult, RichOutput
    from sandbox.sessions.session import CodeSession
    from sandbox.wiring import Listener

__version__ = "0.1.0"


def _listen(path: str, sandbox: Sandbox) -> Listener:
    from sandbox.rpc.listen import SocketListener

    return SocketListener(path, sandbox)


def _attach(id: str) -> Client:
    from sandbox.client import attach

    return attach(id)


def _remote(*given: Any, **more: Any) -> Client:
    from sandbox.remote_server import remote

    return remote(*given, **more)


Wiring.listen, Wiring.attach, Wiring.remote = staticmethod(_listen), staticmethod(_attach), staticmethod(_remote)
Wiring.soon = (
    "threading",
    "sandbox.readiness",
    "sandbox.processes",
    "sandbox.lifetime",
    "sandbox.guest.process",
    "sandbox.guards.watch_later",
    "sandbox.rpc.listen",
)

_HOMES = {
    "Sandbox": "sandbox.sandbox",
    "AsyncSandbox": "sandbox.aio",
    "AsyncProcess": "sandbox.async_process",
    "AsyncPool": "sandbox.async_pool",
    "Pool": "sandbox.pool.pool",
    "PoolStats": "sandbox.pool.shelf",
    "Outcome": "sandbox.pool.outcome",
    "Client": "sandbox.client",
    "ClientPool": "sandbox.client_pool",
    "Config": "sandbox.config.model",
    "Process": "sandbox.protocols",
    "RpcError": "sandbox.rpc.errors",
    "SandboxAuditLog": "sandbox.audit.audit_log",
    "SandboxManager": "sandbox.manager.manager",
    **dict.fromkeys(("Blocked", "Hooks"), "sandbox.network.intercept.hooks"),
    **dict.fromkeys(("Chunk", "ExecResult"), "sandbox.result"),
    **dict.fromkeys(("Ask", "Checkpoint", "FileInfo", "GrepMatch"), "sandbox.info"),
    **dict.fromkeys(("PatchedFile", "Port", "ProcessInfo", "Stats"), "sandbox.info"),
    **dict.fromkeys(("CodeFailure", "CodeResult", "RichOutput"), "sandbox.sessions.result"),
    "CodeSession": "sandbox.sessions.session",
    "AsyncCodeSession": "sandbox.async_session",
    **dict.fromkeys(("query_audit_feed", "subscribe_audit_feed", "get_audit_feed_size"), "sandbox.audit.feed"),
    **dict.fromkeys(("list_sandboxes", "get_sandbox", "kill_sandbox"), "sandbox.registry.api"),
    **dict.fromkeys(("list_vms", "get_vm", "kill_vm"), "sandbox.registry.api"),
    **dict.fromkeys(
        (
            "SandboxError",
            "ConfigError",
            "Denied",
            "EngineUnavailable",
            "WallError",
            "LimitUnavailable",
            "InvalidArgument",
            "CommandError",
            "SandboxClosed",
            "SandboxLost",
            "NotFound",
            "GuestError",
        ),
        "sandbox.errors",
    ),
}

__all__ = [
    "Ask",
    "AsyncCodeSession",
    "AsyncPool",
    "AsyncProcess",
    "AsyncSandbox",
    "Blocked",
    "Checkpoint",
    "Chunk",
    "Client",
    "ClientPool",
    "CodeFailure",
    "CodeResult",
    "CodeSession",
    "CommandError",
    "Config",
    "ConfigError",
    "Denied",
    "EngineUnavailable",
    "ExecResult",
    "FileInfo",
    "GrepMatch",
    "GuestError",
    "Hooks",
    "InvalidArgument",
    "LimitUnavailable",
    "NotFound",
    "Outcome",
    "PatchedFile",
    "Pool",
    "PoolStats",
    "Port",
    "Process",
    "ProcessInfo",
    "RichOutput",
    "RpcError",
    "Sandbox",
    "SandboxAuditLog",
    "SandboxClosed",
    "SandboxError",
    "SandboxLost",
    "SandboxManager",
    "Stats",
    "WallError",
    "get_audit_feed_size",
    "get_sandbox",
    "get_vm",
    "kill_sandbox",
    "kill_vm",
    "list_sandboxes",
    "list_vms",
    "query_audit_feed",
    "subscribe_audit_feed",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sandbox' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
