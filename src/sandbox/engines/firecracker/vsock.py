"""Streams into a machine: Firecracker listens on a Unix socket, and the first line names the machine's port."""

from __future__ import annotations

import os
import socket
import stat
import time

from sandbox.errors import WallError

FIRST_PORT = 1024  # as in guest/machine_vsock.c, in this order
STREAMS = ("control", "system", "files")
PORTS = {name: FIRST_PORT + at for at, name in enumerate(STREAMS)}
OPEN = b"\1"  # our guest waits for this: a connection without it only checks whether anyone listens
ANSWER = 32  # bytes, at most
PATIENCE = 30.0
PAUSE = 0.005


def reach(directory: int, name: str, patience: float) -> socket.socket:
    """A connection to the socket `name` in an open directory, as soon as it exists. Raises WallError.

    The directory belongs to a room: anything there that is not a socket, such as a link, is refused.
    """
    until = time.monotonic() + patience
    while True:
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if stat.S_ISSOCK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                stream.connect(f"/proc/self/fd/{directory}/{name}")
                return stream
        except OSError as problem:
            stream.close()
            if time.monotonic() > until:
                raise WallError("Firecracker does not answer: {problem}", problem=problem) from None
        except BaseException:
            stream.close()
            raise
        else:
            stream.close()
            raise WallError("Firecracker does not answer: {problem}", problem=f"{name} is no socket")
        time.sleep(PAUSE)


def connect(directory: int, name: str, port: int) -> socket.socket:
    """A stream to a port of the machine. Raises WallError when nobody listens there."""
    stream = reach(directory, name, PATIENCE)
    try:
        stream.settimeout(PATIENCE)
        stream.sendall(b"CONNECT %d\n" % port)
        said = b""
        while not said.endswith(b"\n") and len(said) < ANSWER:
            byte = stream.recv(1)  # what follows the line comes from the machine
            if not byte:
                break
            said += byte
        if not (said.startswith(b"OK ") and said.endswith(b"\n")):
            raise WallError("the virtual machine does not listen on port {port}", port=port)
        stream.settimeout(None)
        return stream
    except OSError as problem:
        stream.close()
        raise WallError("Firecracker does not answer: {problem}", problem=problem) from None
    except BaseException:
        stream.close()
        raise


def wait_for(directory: int, name: str, port: int, patience: float) -> None:
    """Waits until something in the machine listens on `port`. Raises WallError when that takes too long."""
    until = time.monotonic() + patience
    while True:
        try:
            connect(directory, name, port).close()
            return
        except WallError:
            if time.monotonic() > until:
                raise
        time.sleep(PAUSE * 10)
