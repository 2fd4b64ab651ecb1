"""Moving the state of a machine's file servers: the owner asks one for it and gives it to its successor."""

from __future__ import annotations

import socket
import struct

from sandbox.errors import SandboxError, WallError

PATIENCE = 60.0  # seconds
FILES_MOST = 256 << 20


def known_files(server: socket.socket) -> bytes:
    try:
        server.settimeout(PATIENCE)
        server.sendall(b"S")
        known = _receive(server, FILES_MOST)
    except OSError as problem:
        raise WallError("the machine's file server does not answer: {problem}", problem=problem) from None
    if not known:
        raise WallError("the machine's files cannot be saved at this moment: it uses too many, or is too busy")
    return known


def tell_server(control: socket.socket, known: bytes) -> None:
    """Gives a new file server the state of another. `hear_server` reads its answer."""
    control.settimeout(PATIENCE)
    try:
        control.sendall(struct.pack("=Q", len(known)) + known)
    except OSError:
        pass  # `hear_server` will report why


def hear_server(control: socket.socket) -> None:
    """Reads a new server's answer. Raises SandboxError when files that it was given have been replaced."""
    try:
        said = _receive(control, 4096)
    except OSError:
        said = b"no answer"
    if said:
        raise SandboxError(
            "files that the checkpoint needs have changed ({said})",
            said=ascii(said.decode(errors="replace")),
        )


def _receive(stream: socket.socket, most: int) -> bytes:
    """A message, which follows its size. Raises OSError."""
    (size,) = struct.unpack("=Q", _exactly(stream, 8))
    if size > most:
        raise OSError("more than was expected")
    return _exactly(stream, size)


def _exactly(stream: socket.socket, size: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < size:
        piece = stream.recv(min(size - len(pieces), 1 << 20))
        if not piece:
            raise OSError("it has ended")
        pieces += piece
    return bytes(pieces)
