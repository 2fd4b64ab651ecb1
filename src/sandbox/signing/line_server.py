"""The signer's two sockets: one JSON object per line, one answer to each.

Gates and the HTTP server ask for signatures at one. A person decides at the other, with a credential that the signer
itself checks. Nothing that is sent to the first can decide anything.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable
from threading import BoundedSemaphore, Event, Thread
from typing import Any

from sandbox.errors import Denied, NotFound, SandboxError
from sandbox.signing import strict_json
from sandbox.signing.service import SigningService

MOST_AT_ONCE = 256
IDLE = 600.0
PAUSE = 0.1
LONGEST_WAIT = 300.0

Handle = Callable[[dict[str, Any], int], dict[str, Any]]


class LineServer:
    """Serves one listening socket in threads. `handle(message, pid)`: `pid` is the process at the other end."""

    def __init__(self, listening: socket.socket, handle: Handle) -> None:
        self._listening = listening
        self._handle = handle
        self._closed = Event()
        self._room = BoundedSemaphore(MOST_AT_ONCE)
        self._thread = Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listening.accept()
            except OSError:  # closed, or no descriptor is left at the moment
                if self._listening.fileno() < 0 or self._closed.wait(PAUSE):
                    return
                continue
            if not self._room.acquire(blocking=False):
                line.close()
                continue
            Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        try:
            with line, line.makefile("rwb") as stream:
                line.settimeout(IDLE)
                pid = peer(line)
                while data := stream.readline(strict_json.LONGEST + 1):
                    stream.write(strict_json.dumps(self._answer(data, pid)) + b"\n")
                    stream.flush()
                    if not data.endswith(b"\n"):
                        return
        except OSError:
            pass  # it left, or sent nothing
        finally:
            self._room.release()

    def _answer(self, data: bytes, pid: int) -> dict[str, Any]:
        try:
            message = strict_json.loads(data)
            if not isinstance(message, dict):
                raise strict_json.NotJson("is not an object")
            return self._handle(message, pid)
        except strict_json.NotJson as problem:
            return {"error": "form", "message": str(problem)}
        except Denied as problem:
            return {"error": "denied", "rule": problem.rule, "message": str(problem.reason)}
        except NotFound as problem:
            return {"error": "not_found", "message": str(problem)}
        except SandboxError as problem:
            return {"error": "failed", "message": str(problem)}
        except Exception as problem:  # noqa: BLE001 - our own mistake refuses, too
            return {"error": "failed", "message": type(problem).__name__}

    def close(self) -> None:
        self._closed.set()
        # Closing alone does not wake a thread that waits in accept().
        try:
            self._listening.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listening.close()


def peer(line: socket.socket) -> int:
    """The process at the other end; 0 where the system does not say."""
    if sys.platform != "linux":
        return 0
    return int(struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def asking(
    service: SigningService, family_of: Callable[[str, int], str | None], serves: Callable[[int], bool]
) -> Handle:
    """Handles requests for signatures. `family_of(sandbox, pid)`: what that sandbox's limits are counted for, None when
    it is another process's; `serves(pid)`: whether that is our HTTP server, which alone speaks for tokens."""

    def who(message: dict[str, Any], pid: int) -> dict[str, str]:
        """The asker, its sandbox, and what its limits are counted for: always the same for one asker."""
        asker = str(message.get("asker", ""))
        kind, _, name = asker.partition(":")
        if not name or kind not in ("sandbox", "token") or not asker.isprintable() or len(asker) > 128:
            raise Denied("asker", "nobody is asking")
        if kind == "token":
            if not serves(pid):
                raise Denied("asker", "only the HTTP server may act for a token")
            return {"asker": asker, "sandbox": asker, "family": asker}
        family = family_of(name, pid)
        if family is None:
            raise Denied("asker", "that sandbox belongs to another process")
        return {"asker": asker, "sandbox": name, "family": family}

    def handle(message: dict[str, Any], pid: int) -> dict[str, Any]:
        operation = message.get("op")
        if operation == "address":
            return {"address": service.address, "chains": service.rules.signing.chains}
        asked_by = who(message, pid)
        if operation == "submit":
            given = (message.get("id"), message.get("kind"), message.get("request"))
            return service.submit(*given, **asked_by).plain()
        if operation == "wait":
            seconds = message.get("seconds")
            if type(seconds) is not int or not 0 <= seconds <= LONGEST_WAIT:
                raise strict_json.NotJson("has no number of seconds")
            result = service.wait(str(message.get("id")), asker=asked_by["asker"], seconds=seconds)
            return {"pending": True, "success": False} if result is None else result.plain()
        raise strict_json.NotJson("has no known operation")

    return handle


def deciding(service: SigningService, approver: Callable[[dict[str, Any]], str | None]) -> Handle:
    """Handles a person's decisions. `approver(credential)` names the person; None: the credential is not valid."""

    def handle(message: dict[str, Any], pid: int) -> dict[str, Any]:
        operation = message.get("op")
        if operation == "pending":
            return {"pending": service.pending()}
        if operation not in ("approve", "reject"):
            raise strict_json.NotJson("has no known operation")
        credential = message.get("credential")
        name = approver(credential) if isinstance(credential, dict) else None
        if name is None:
            raise Denied("credential", "approving needs a credential of its own: a token with scope approve")
        hash = message.get("hash")
        if hash is not None and not isinstance(hash, str):
            raise strict_json.NotJson("has a hash that is no text")
        decide = service.approve if operation == "approve" else service.reject
        return decide(message.get("id"), approver=name, hash=hash).plain()

    return handle
