"""Input that is written after a terminal's new size was told finds that size, however busy the guest is."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.guest import cbor
from sandbox.guest.bridge_jobs import CommandJob
from sandbox.guest.channel import Loop

pytestmark = pytest.mark.walls


def test_a_new_size_is_there_before_input_that_is_written_after_it(tmp_path: Path) -> None:
    settings = {"filesystem": {"root": str(tmp_path)}}
    script = "stty size; read line; stty size"
    with Sandbox(settings) as sandbox, sandbox.spawn(script, pty=(10, 20)) as process:
        said = b""
        while b"10 20" not in said:
            said += process.read()
        guest = sandbox._running.pid
        assert guest is not None
        os.kill(guest, signal.SIGSTOP)  # it does nothing meanwhile
        try:
            process.resize(30, 40)
            process.write(b"\n")
            while b"30 40" not in said:
                said += process.read()
                assert said.count(b"10 20") == 1
        finally:
            os.kill(guest, signal.SIGCONT)
        assert process.wait().exit_code == 0


class _Way:
    """What is sent to a framed guest."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.full = False
        self.sent: list[dict[str, Any]] = []

    def send(self, message: dict[str, object]) -> None:
        self.sent.append(message)

    def expect(self, job: object, within: float | None) -> None: ...

    def over(self, job: object) -> None: ...

    def gone(self, job: object) -> None: ...


def test_frames_keep_the_order_of_a_new_size_and_input() -> None:
    way = _Way()
    ours, theirs = socket.socketpair()
    with ours:
        job = CommandJob(way, 1, theirs, [])
        job.heard({"t": "started", "pid": 7})
        _, fds, _, _ = socket.recv_fds(ours, 4096, 1)
        body = cbor.encode({"t": "resize", "rows": 30, "cols": 40})
        ours.sendall(len(body).to_bytes(4, "little") + body)
        os.write(fds[0], b"\n")
        assert job._source is not None
        job._source._ready()  # whichever descriptor the loop looks at first
        assert [one["t"] for one in way.sent] == ["resize", "in"]
        os.close(fds[0])
        job.close()
