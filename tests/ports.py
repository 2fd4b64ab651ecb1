"""Ports for programs that cannot choose one by themselves."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def unused_port() -> int:
    """A port of the loopback that nobody listens on. Not one of those that the kernel gives to whoever asks for any: it
    could give the same one to another test before the program listens there."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, max(lowest, 20_000))
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port of the loopback that refuses connections: it is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
