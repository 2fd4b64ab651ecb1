"""The signer's sockets stay open."""

from __future__ import annotations

import errno
import json
import socket
from pathlib import Path
from typing import Any

from sandbox.signing.line_server import LineServer


def test_it_continues_after_a_moment_without_descriptors(tmp_path: Path) -> None:
    class Full(socket.socket):
        times = 2

        def accept(self) -> tuple[socket.socket, Any]:
            if self.times:
                self.times -= 1
                raise OSError(errno.EMFILE, "too many open files")
            return super().accept()

    listening = Full(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    listening.listen()
    server = LineServer(listening, lambda message, pid: {"heard": message})
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(60)
            line.connect(str(tmp_path / "socket"))
            line.sendall(b'{"a":1}\n')
            assert json.loads(line.makefile("rb").readline()) == {"heard": {"a": 1}}
    finally:
        server.close()
    server._thread.join(60)
    assert not server._thread.is_alive()
