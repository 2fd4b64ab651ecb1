"""The smallest engine: the guest at the other end of a TCP connection, no walls, and no descriptor that crosses."""

from __future__ import annotations

import os
import socket
import subprocess

from sandbox.engines.base import Capabilities, Engine, Finding, GuestRunning, Started
from sandbox.errors import SandboxClosed, WallError
from sandbox.guest.binary import guest_binary
from sandbox.guest.framed import FramedGuest
from sandbox.plan.plan import Plan


class FramedStart(Started):
    def __init__(self, guest: FramedGuest, process: subprocess.Popen[bytes]) -> None:
        self.guest, self._process = guest, process

    def build(self, plan: Plan) -> FramedRunning:
        try:
            self.guest.greet()
            self.guest.set_up(plan.setup(""))
        except SandboxClosed:
            self.abandon()
            raise WallError("the guest ended") from None
        except BaseException:
            self.abandon()
            raise
        return FramedRunning(self)

    def abandon(self) -> None:
        self.guest.close()
        self._process.wait()


class FramedRunning(GuestRunning):
    def __init__(self, started: FramedStart) -> None:
        super().__init__(started.guest)
        self._started = started

    def close(self) -> None:
        self._started.abandon()


class FramedEngine(Engine):
    name, can = "framed", Capabilities(walls=False, own_root=False, descriptors=False)

    def findings(self) -> list[Finding]:
        return [Finding("guest program", os.path.exists(guest_binary()))]

    def start(self) -> FramedStart:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
        # The guest finds its stream on descriptor 3. One that is no Unix socket makes it speak in frames.
        start = ["sh", "-c", 'exec 3<&0 </dev/null; exec "$0"', guest_binary()]
        with theirs:
            process = subprocess.Popen(start, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True)
        return FramedStart(FramedGuest(ours), process)
