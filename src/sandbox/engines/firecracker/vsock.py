"""Streams into a machine: Firecracker listens on a Unix socket; the first line names the port of the machine."""

from __future__ import annotations

import os
import socket
import stat
import time

from sandbox.errors import WallError

FIRST_PORT = 1024  # also guest/machine_vsock.c, and in this order
STREAMS = ("control", "system", "files")
PORTS = {name: FIRST_PORT + at for at, name in enumerate(STREAMS)}
OPEN = b"\1"  # what our guest waits for: a silent connection only checks whether somebody listens
ANSWER = 32  # bytes, at the most
PATIENCE = 30.0
PAUSE = 0.005


def reach(directory: int, name: str, patience: float) -> socket.socket:
    """A connection to the socket `name` in an open directory, as soon as there is one. Raises WallError.

    The directory is a room's: what is not a socket there, a link for one, is not used.
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
    """A stream to a port of the machine's. Raises WallError when nobody listens there."""
    stream = reach(directory, name, PATIENCE)
    try:
        stream.settimeout(PATIENCE)
        stream.sendall(b"CONNECT %d\n" % port)
        said = b""
        while not said.endswith(b"\n") and len(said) < ANSWER:
            byte = stream.recv(1)  # what comes after the line is the machine's
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
    """Returns when somebody in the machine listens on `port`. Raises WallError when that takes too long."""
    until = time.monotonic() + patience
    while True:
        try:
            connect(directory, name, port).close()
            return
        except WallError:
            if time.monotonic() > until:
                raise
        time.sleep(PAUSE * 10)
