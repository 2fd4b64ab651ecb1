"""A sandbox, as the answers of the control plane show it."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from typing import Any

from litestar import Request

from sandbox.registry.registry import Entry
from sandbox.server.e2b.hosts import base_name
from sandbox.server.e2b.state import SandboxState
from sandbox.server.scopes import Access
from sandbox.server.server import Server

ENVD = "0.6.4"  # the version of E2B's daemon whose calls are supported here; clients then avoid later ones
MIB = 2**20


def opened(
    server: Server, access: Access, request: Request[Any, Any, Any], id: str, state: SandboxState
) -> dict[str, Any]:
    """What a client needs to use the sandbox. The tokens for calls and for ports are the same."""
    token = server.e2b.credentials.access_token(id, access)
    return {
        "sandboxID": id,
        "templateID": state.template,
        "alias": state.template,
        "clientID": "local",
        "envdVersion": ENVD,
        "envdAccessToken": token,
        "trafficAccessToken": token,
        "domain": domain(request),
    }


def domain(request: Request[Any, Any, Any]) -> str:
    """The domain that clients put `PORT-ID.` in front of. localhost for an IP address, which has no subdomains."""
    host, colon, port = request.headers.get("host", "localhost").rpartition(":")
    name = base_name(host if colon and port.isdigit() else f"{host}{colon}{port}")
    if name.startswith("[") or name.replace(".", "").isdigit():
        name = "localhost"
    return f"{name}:{port}" if colon and port.isdigit() else name


def listed(server: Server, entry: Entry) -> dict[str, Any]:
    """A sandbox in a list."""
    known = server.reach.known(entry.id)
    state = server.e2b.of(entry.id)
    limits = entry.config.get("limits") or {}
    return {
        "sandboxID": entry.id,
        "templateID": state.template,
        "alias": state.template,
        "clientID": "local",
        "startedAt": _time(state.started or entry.created_at),
        "endAt": _time(state.end(entry.created_at)),
        "cpuCount": cpus(limits),
        "memoryMB": memory(limits) // MIB,
        "diskSizeMB": 0,
        "metadata": state.metadata,
        "state": "paused" if known is not None and known.paused else "running",
        "envdVersion": ENVD,
    }


def detailed(server: Server, access: Access, request: Request[Any, Any, Any], entry: Entry) -> dict[str, Any]:
    """All details of a sandbox."""
    state = server.e2b.of(entry.id)
    whole = {**listed(server, entry), **opened(server, access, request, entry.id, state)}
    lifecycle = {"autoResume": state.wakes, "onTimeout": "pause" if state.pauses else "kill"}
    return {**whole, "allowInternetAccess": state.internet, "lifecycle": lifecycle}


def measured(state: SandboxState, entry: Entry, stats: dict[str, Any], moment: float) -> dict[str, Any]:
    """The resources it uses. The processor share is since the last call, or since the sandbox started."""
    used = float(stats.get("cpu_ms") or 0)
    then, before = state.cpu or (entry.created_at, 0.0)
    state.cpu = moment, used
    limits = entry.config.get("limits") or {}
    disk = _disk(str((entry.config.get("filesystem") or {}).get("root", "")))
    return {
        "timestamp": _time(moment),
        "timestampUnix": int(moment),
        "cpuCount": cpus(limits),
        "cpuUsedPct": round(max(0.0, used - before) / max(1.0, (moment - then) * 1000) * 100, 2),
        "memUsed": stats.get("memory_bytes") or 0,
        "memTotal": memory(limits),
        "memCache": 0,
        "diskUsed": disk[0],
        "diskTotal": disk[1],
    }


def cpus(limits: dict[str, Any]) -> int:
    return max(1, int(limits.get("cpus") or os.cpu_count() or 1))


def memory(limits: dict[str, Any]) -> int:
    wanted = limits.get("memory")
    return wanted if isinstance(wanted, int) else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _disk(root: str) -> tuple[int, int]:
    try:
        found = shutil.disk_usage(root)
    except OSError:
        return 0, 0
    return found.used, found.total


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
