"""Chromium's debugging protocol over the pipe it was started with, shared by any number of clients.

There is no port: no page and no other program inside can reach the protocol. Each client has a session of its own,
and is sent what belongs to it or to sessions below it. What the browser says is hostile: a message has a bound,
and one that is not JSON ends the browser.
"""

from __future__ import annotations

import json
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.guest.process import Process

    Message = dict[str, Any]

MOST_BYTES = 128 * 2**20  # of one message
MOST_DEPTH_ERROR = (ValueError, RecursionError)
_PATIENCE = 20.0


class CdpClient:
    """One client: what it sends goes to its own session, and what comes from there goes to `tell`."""

    def __init__(self, cdp: Cdp, session: str, tell: Callable[[str], object], gone: Callable[[], object]) -> None:
        self._cdp, self.session, self.tell, self.gone = cdp, session, tell, gone

    def send(self, text: str) -> None:
        """Passes a message on. Raises SandboxError for what is none, or is for another client's session."""
        try:
            message = json.loads(text)
        except MOST_DEPTH_ERROR:
            raise SandboxError("that is no message of the debugging protocol") from None
        if not isinstance(message, dict) or "method" not in message:
            raise SandboxError("that is no message of the debugging protocol")
        named = message.setdefault("sessionId", self.session)
        if self._cdp.owner(named) is not self:
            raise SandboxError("that session is not this client's")
        self._cdp.write(message)

    def close(self) -> None:
        """Leaves. Idempotent."""
        self._cdp.leave(self)


class Cdp:
    """The browser's end. Starts a thread that reads."""

    def __init__(self, process: Process, ended: Callable[[], object]) -> None:
        self._process, self._ended = process, ended
        self._lock = Lock()
        self._number = 0
        self._waiting: dict[int, tuple[Event, list[Message]]] = {}
        self._owners: dict[str, CdpClient] = {}
        self.over = False
        Thread(target=self._read, name="sandbox-cdp", daemon=True).start()

    def call(self, method: str, *, patience: float = _PATIENCE, **params: Any) -> Message:
        """One request of our own, and its result within so many seconds. Raises SandboxError."""
        with self._lock:
            self._number += 1
            number = self._number
            waiting: tuple[Event, list[Message]] = (Event(), [])
            self._waiting[number] = waiting
        try:
            self.write({"id": number, "method": method, "params": params})
            if not waiting[0].wait(patience) or not waiting[1]:
                raise SandboxError("the browser inside does not answer")
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        answer = waiting[1][0]
        if not isinstance(answer.get("result"), dict):
            raise SandboxError("the browser inside refused {method}", method=method)
        result: Message = answer["result"]
        return result

    def attach(self, tell: Callable[[str], object], gone: Callable[[], object], target: str | None = None) -> CdpClient:
        """A new client, of the browser as a whole or of one page. Raises SandboxError."""
        if target is None:
            answer = self.call("Target.attachToBrowserTarget")
        else:
            answer = self.call("Target.attachToTarget", targetId=target, flatten=True)
        client = CdpClient(self, str(answer.get("sessionId")), tell, gone)
        with self._lock:
            self._owners[client.session] = client
        return client

    def owner(self, session: object) -> CdpClient | None:
        return self._owners.get(session) if isinstance(session, str) else None

    def leave(self, client: CdpClient) -> None:
        with self._lock:
            mine = [session for session, owner in self._owners.items() if owner is client]
            for session in mine:
                del self._owners[session]
        if client.session in mine and not self.over:
            try:
                self.write({"id": 0, "method": "Target.detachFromTarget", "params": {"sessionId": client.session}})
            except SandboxError:
                pass

    def write(self, message: Message) -> None:
        """Raises SandboxError when the browser has ended."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\0"
        try:
            with self._lock:
                self._process.write(data)
        except OSError:
            raise SandboxError("the browser inside has ended") from None

    def close(self) -> None:
        """Ends the browser. Idempotent."""
        self._process.close()

    # -- what the browser says

    def _read(self) -> None:
        held = bytearray()
        try:
            while data := self._process.read(2**20):
                held += data
                while (at := held.find(b"\0")) >= 0:
                    self._heard(bytes(held[:at]))
                    del held[: at + 1]
                if len(held) > MOST_BYTES:
                    break
        except (SandboxError, OSError, ValueError, RecursionError):
            pass  # ended, or not worth listening to
        self.over = True
        self._process.close()
        with self._lock:
            waiting, owners = list(self._waiting.values()), {id(one): one for one in self._owners.values()}
            self._owners = {}
        for event, _ in waiting:
            event.set()
        for client in owners.values():
            client.gone()
        self._ended()

    def _heard(self, data: bytes) -> None:
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError
        session = message.get("sessionId")
        if session is None:
            waiting = self._waiting.get(message.get("id", 0))
            if waiting is not None:
                waiting[1].append(message)
                waiting[0].set()
            return
        client = self.owner(session)
        if client is None:
            return
        self._follow_sessions(message, client)
        if session == client.session:
            del message["sessionId"]
        client.tell(json.dumps(message, separators=(",", ":")))

    def _follow_sessions(self, message: Message, client: CdpClient) -> None:
        """A session that a client's session opens is that client's too."""
        params = message.get("params")
        if not isinstance(params, dict) or not isinstance(session := params.get("sessionId"), str):
            return
        with self._lock:
            if message.get("method") == "Target.attachedToTarget":
                self._owners.setdefault(session, client)
            elif message.get("method") == "Target.detachedFromTarget" and self._owners.get(session) is client:
                del self._owners[session]
