"""A stand-in for the internet: an upstream proxy on the loopback behind which every host is one small server."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

from tests.network.lab import Pki

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"


class Internet:
    """Takes `CONNECT host:port`, then answers any request as that host, on port 443 over TLS. Nothing leaves here."""

    def __init__(self, directory: Path, hosts: list[str]) -> None:
        pki = Pki(directory)
        self.authority = pki.file
        self._tls = pki.server_context(hosts, ["http/1.1"])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.proxy = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(30)
            head = _head(connection)
            target = head.split()[1].decode()
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            if target.endswith(":443"):
                connection = self._tls.wrap_socket(connection, server_side=True)
            self.seen.append(f"{target} {_head(connection).decode('latin-1')}")
            connection.sendall(_ANSWER)
        except (OSError, ssl.SSLError, IndexError):
            pass  # the client went away
        finally:
            connection.close()


def _head(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(4096)
        if not piece:
            raise OSError("closed")
        head += piece
    return head
