"""The desktop of a sandbox in another process."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from sandbox.desktop.methods import DesktopMethods

if TYPE_CHECKING:
    import socket

    from sandbox.rpc.connection import Connection


class ClientDesktop(DesktopMethods):
    """`client.desktop`: the methods of `Sandbox.desktop`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _look(self, control: bool) -> socket.socket:
        """See `Desktop._look`."""
        from sandbox.rpc.tunnel import tunnel

        return tunnel(self._connection, "view", {"control": control})

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        told: dict[str, Any] = self._connection.call("desktop", {"do": method, **params})
        if isinstance(told.get("data"), str):
            told["data"] = base64.b64decode(told["data"], validate=True)
        return told
