"""A port of this machine's loopback for VNC viewers (`browser.vnc_port`), in front of the screen inside.

There is no password: the kernel is asked whether the viewer is a program of the same user. Neither side is trusted
beyond that; see `rfb.py`.
"""

from __future__ import annotations

import os
import socket
import struct
from threading import Thread
from typing import TYPE_CHECKING

from sandbox.desktop.loopback import Loopback, hang_up, peer_user
from sandbox.desktop.rfb import Filter, Introduction

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.desktop.loopback import Peer

_PIECE = 2**16
_PATIENCE = 60  # seconds until a side that does not read is given up


class VncPort:
    """Listens until it is closed. `look` connects to the screen inside."""

    def __init__(self, port: int, look: Callable[[], socket.socket], most_pixels: int) -> None:
        """Raises SandboxError when the port is taken."""
        self._look = look
        self._most_pixels = most_pixels
        self._listening = Loopback(port, self._show)

    def close(self) -> None:
        """Stops listening, and ends every connection. Idempotent."""
        self._listening.close()

    def _show(self, viewer: socket.socket, peer: Peer) -> None:
        if peer_user(peer, self._listening.port) != os.geteuid():
            return
        with self._look() as screen:
            shown = Introduction(self._most_pixels).feed
            pictures = Thread(target=_carry, args=(screen, viewer, shown), name="sandbox-vnc", daemon=True)
            pictures.start()
            _carry(viewer, screen, Filter(control=True).feed)
            pictures.join()


def _carry(source: socket.socket, target: socket.socket, passed: Callable[[bytes], bytes | None]) -> None:
    """Copies what may pass until either side ends or breaks the protocol; then ends both."""
    target.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _PATIENCE, 0))
    try:
        while (data := source.recv(_PIECE)) and (allowed := passed(data)) is not None:
            target.sendall(allowed)
    except OSError:
        pass
    finally:
        hang_up(source)
        hang_up(target)
