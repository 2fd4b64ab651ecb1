"""QEMU's monitor (QMP): JSON lines on a socket that only the owner has."""

from __future__ import annotations

import array
import json
import socket
import time

from sandbox.errors import WallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

PATIENCE = 60.0  # seconds for one answer; saving a large machine's memory takes time


class Monitor:
    """One connection. Every method raises WallError when QEMU refuses or has ended."""

    def __init__(self, stream: socket.socket) -> None:
        self._socket = stream
        stream.settimeout(PATIENCE)
        self._lines = stream.makefile("rb")
        self._receive()  # the greeting
        self.ask("qmp_capabilities")
        # The memory file is not part of what is saved and loaded.
        self.ask("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}])

    def give(self, name: str, fd: int) -> None:
        """Passes a descriptor to QEMU, which then knows it as `fd:name`."""
        self.ask("getfd", (fd,), fdname=name)

    def ask(self, command: str, fds: Sequence[int] = (), **arguments: object) -> Any:
        """Sends one command and returns its answer, skipping events that come before it."""
        message = {"execute": command, **({"arguments": arguments} if arguments else {})}
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self._socket.sendmsg([json.dumps(message).encode() + b"\n"], beside)
        except OSError as problem:
            raise WallError("QEMU has ended: {problem}", problem=problem) from None
        until = time.monotonic() + PATIENCE
        while True:
            answer = self._receive()
            if "error" in answer:
                refusal = answer["error"]
                told = refusal.get("desc", "") if isinstance(refusal, dict) else refusal
                raise WallError("QEMU refused {command}: {said}", command=command, said=ascii(str(told)[:500])[1:-1])
            if "return" in answer:
                return answer["return"]
            if time.monotonic() > until:  # events can go on for ever
                raise WallError("QEMU's monitor cannot be understood: {problem}", problem="no answer")

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._lines.readline(1 << 20)
            answer = json.loads(line) if line else None
        except (OSError, ValueError, RecursionError) as problem:
            raise WallError("QEMU's monitor cannot be understood: {problem}", problem=problem) from None
        if not isinstance(answer, dict):
            raise WallError("QEMU has ended")
        return answer

    def close(self) -> None:
        """Closes the connection; the machine keeps running."""
        self._lines.close()
        self._socket.close()
