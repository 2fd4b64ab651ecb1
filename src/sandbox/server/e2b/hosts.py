"""Finds which sandbox a request is for: by its headers, or by the host name it was sent to, `PORT-ID.DOMAIN`.

With `E2B_SANDBOX_URL`, all sandboxes share one address, and clients send the id in a header. With `E2B_DOMAIN`, each
port of each sandbox has a host name. Any port but E2B's own two belongs to a program inside: see `routes/ports.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from litestar.types import Send

DAEMON, INTERPRETER = 49983, 49999  # the ports of E2B's own services
API = "api."
_NAME = re.compile(r"([0-9]{1,5})-(vm-[0-9a-f]{8,32})\.(.+)", re.IGNORECASE)
_ID = re.compile(r"vm-[0-9a-f]{8,32}")


def base_name(host: str) -> str:
    """The server's own name in a host name: the NAME of `api.NAME` and `PORT-ID.NAME`."""
    form = _NAME.fullmatch(host)
    if form is not None:
        return form[3]
    return host[len(API) :] if host.lower().startswith(API) else host


def whole_id(text: str) -> bool:
    """Whether that is a complete sandbox id, not a shortened one or a name."""
    return _ID.fullmatch(text) is not None


def addressed(scope: Any) -> str:
    """The id of the sandbox that the request is for; "" when it names none."""
    known: str = scope.get("e2b.sandbox", "")
    if known:
        return known
    found = next((value for name, value in scope["headers"] if name == b"e2b-sandbox-id"), b"").decode("latin-1")
    return found if whole_id(found) else ""


def route(scope: Any, send: Send) -> Send:
    """Reads `PORT-ID.DOMAIN`: notes which sandbox the request is for, and routes other ports to the program inside."""
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    form = _NAME.fullmatch(host)
    if form is None:
        return send
    port, sandbox = int(form[1]), form[2].lower()
    scope["e2b.sandbox"] = sandbox
    if port in (DAEMON, INTERPRETER):
        return send
    prefix = f"/v1/sandboxes/{sandbox}/port/{port}"
    scope["path"] = prefix + scope["path"]
    scope["raw_path"] = prefix.encode() + scope.get("raw_path", b"/")
    return _without(prefix.encode(), send)


def _without(prefix: bytes, send: Send) -> Send:
    """Removes the prefix from redirects, so that they name the path as the caller sees it."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                (name, value[len(prefix) :] if name.lower() == b"location" and value.startswith(prefix) else value)
                for name, value in message["headers"]
            ]
        await send(message)

    return sending
