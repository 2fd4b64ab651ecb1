"""A connection to a port, or to the screen, inside another process's sandbox, as a socket of this one."""

from __future__ import annotations

import select
import socket
from threading import Thread
from typing import Any

from sandbox.errors import SandboxError
from sandbox.rpc.connection import AnswerStream, Connection

WINDOW = 2**19
_PIECE = 2**16


def tunnel(connection: Connection, method: str, asked: dict[str, Any]) -> socket.socket:
    """Connects with `dial`, `view` or `gate`, and returns our end; two threads relay its data over the connection.

    Raises OSError, SandboxError.
    """
    stream = connection.stream(method, {**asked, "credit": WINDOW})
    stream.next()
    ours, theirs = socket.socketpair()
    for carry in (_from_inside, _to_inside):
        Thread(target=carry, args=(connection, stream, theirs), name="sandbox-dial", daemon=True).start()
    return ours


def _from_inside(connection: Connection, stream: AnswerStream, line: socket.socket) -> None:
    try:
        while not (received := stream.next_received()).end:
            if received.eof:
                line.shutdown(socket.SHUT_WR)  # the program inside sends no more, but may still read
            elif received.data:
                line.sendall(received.data)
                connection.notify("more", {"request": stream.id, "bytes": len(received.data)})
        stream.finished()
        line.shutdown(socket.SHUT_WR)
    except (SandboxError, OSError):  # the sandbox has ended, or nobody reads here any more
        _shut(line)
        stream.close()


def _to_inside(connection: Connection, stream: AnswerStream, line: socket.socket) -> None:
    try:
        while data := line.recv(_PIECE):
            connection.call("input", {"request": stream.id, "data": data})
        connection.call("input", {"request": stream.id, "end": True})
    except (SandboxError, OSError):
        _shut(line)  # the program inside reads no more
    # Data from inside is still wanted until our end is closed completely, not only for sending.
    poll = select.poll()
    poll.register(line, 0)
    poll.poll()
    stream.close()
    line.close()


def _shut(line: socket.socket) -> None:
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
