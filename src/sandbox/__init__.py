"""Run code you do not trust on your own machine.

    from sandbox import Sandbox

    with Sandbox() as sb:
        print(sb.exec("python3 untrusted.py").stdout)

Names are loaded when they are first used: `import sandbox` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.aio import AsyncSandbox
    from sandbox.audit.audit_log import SandboxAuditLog
    from sandbox.audit.feed import get_audit_feed_size, query_audit_feed, subscribe_audit_feed
    from sandbox.config.model import Config
    from sandbox.errors import (
        CommandError,
        ConfigError,
        Denied,
        EngineUnavailable,
        GuestError,
        LimitUnavailable,
        NotFound,
        SandboxClosed,
        SandboxError,
        WallError,
    )
    from sandbox.guest.process import Process
    from sandbox.network.intercept.hooks import Blocked, Hooks
    from sandbox.registry.api import get_vm, kill_vm, list_vms
    from sandbox.result import Chunk, ExecResult
    from sandbox.sandbox import Sandbox

__version__ = "0.1.0"

_HOMES = {
    "Sandbox": "sandbox.sandbox",
    "AsyncSandbox": "sandbox.aio",
    "Config": "sandbox.config.model",
    "Process": "sandbox.guest.process",
    "Blocked": "sandbox.network.intercept.hooks",
    "Hooks": "sandbox.network.intercept.hooks",
    "Chunk": "sandbox.result",
    "ExecResult": "sandbox.result",
    "SandboxAuditLog": "sandbox.audit.audit_log",
    **dict.fromkeys(("query_audit_feed", "subscribe_audit_feed", "get_audit_feed_size"), "sandbox.audit.feed"),
    **dict.fromkeys(("list_vms", "get_vm", "kill_vm"), "sandbox.registry.api"),
    **dict.fromkeys(
        (
            "SandboxError",
            "ConfigError",
            "Denied",
            "EngineUnavailable",
            "WallError",
            "LimitUnavailable",
            "CommandError",
            "SandboxClosed",
            "NotFound",
            "GuestError",
        ),
        "sandbox.errors",
    ),
}

__all__ = [
    "AsyncSandbox",
    "Blocked",
    "Chunk",
    "CommandError",
    "Config",
    "ConfigError",
    "Denied",
    "EngineUnavailable",
    "ExecResult",
    "GuestError",
    "Hooks",
    "LimitUnavailable",
    "NotFound",
    "Process",
    "Sandbox",
    "SandboxAuditLog",
    "SandboxClosed",
    "SandboxError",
    "WallError",
    "get_audit_feed_size",
    "get_vm",
    "kill_vm",
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
