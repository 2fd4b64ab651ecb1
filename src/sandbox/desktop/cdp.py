"""Chromium's debugging protocol over the pipe it was started with, shared by any number of clients.

There is no port: no page and no other program inside can reach the protocol. Each client has its own session, and is
sent what belongs to that session or to sessions below it.

The browser is hostile. Its messages are bounded, and only their outermost fields are decoded (a few bytes of JSON can
become many Python objects). The browser is ended when it sends something that is not a message, stops reading, or does
not answer us; the next use starts it again.
"""

from __future__ import annotations

from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct, UnsetType, json

from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.guest.process import Process

MOST_BYTES = 128 * 2**20  # of one message
MOST_RESULT = 4 * 2**20  # bytes of an answer to one of our own requests
MOST_SESSIONS = 4096
PATIENCE = 30.0  # seconds that the browser has to read what we write, and to answer us
_NO_MESSAGE = (ValueError, RecursionError)


class CdpMessage(Struct, omit_defaults=True):
    """One message, in either direction. Nested values stay undecoded."""

    id: int | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    sessionId: str | UnsetType = UNSET


class _Named(Struct):
    """Parameters that name a session."""

    sessionId: str = ""


_message = json.Decoder(CdpMessage)
_named = json.Decoder(_Named)


class CdpClient:
    """One client. What it sends goes to its own session; what comes from there is passed to `tell`."""

    def __init__(self, cdp: Cdp, session: str, tell: Callable[[str], object], gone: Callable[[], object]) -> None:
        self._cdp, self.session, self.tell, self.gone = cdp, session, tell, gone

    def send(self, text: str) -> None:
        """Passes a message on. Raises SandboxError if it is not a valid message, or is for another client's session."""
        try:
            message = _message.decode(text)
        except _NO_MESSAGE:
            raise SandboxError("that is not a message of the debugging protocol") from None
        if message.method is UNSET:
            raise SandboxError("that is not a message of the debugging protocol")
        if message.sessionId is UNSET:
            message.sessionId = self.session
        if self._cdp.owner(message.sessionId) is not self:
            raise SandboxError("that session belongs to another client")
        self._cdp.write(message)

    def close(self) -> None:
        """Detaches from the browser. Idempotent."""
        self._cdp.leave(self)


class Cdp:
    """The connection to the browser. Starts a thread that reads."""

    def __init__(self, process: Process, ended: Callable[[], object]) -> None:
        self._process, self._ended = process, ended
        self._lock = Lock()  # protects the fields below; never held while waiting for the browser
        self._writing = Lock()
        self._number = 0
        self._waiting: dict[int, tuple[Event, list[CdpMessage]]] = {}
        self._owners: dict[str, CdpClient] = {}
        self.over = False
        Thread(target=self._read, name="sandbox-cdp", daemon=True).start()

    def call(self, method: str, *, patience: float | None = None, **params: Any) -> dict[str, Any]:
        """Sends a request of our own; returns its result. Raises SandboxError, also after `patience` seconds."""
        with self._lock:
            self._number += 1
            number = self._number
            waiting: tuple[Event, list[CdpMessage]] = (Event(), [])
            self._waiting[number] = waiting
        try:
            self.write(CdpMessage(number, method, Raw(json.encode(params))))
            if not waiting[0].wait(PATIENCE if patience is None else patience):
                self.close()
                raise SandboxError("the browser inside does not answer: it was ended")
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if not waiting[1]:
            raise SandboxError("the browser inside has ended")
        return _result(waiting[1][0], method)

    def attach(self, tell: Callable[[str], object], gone: Callable[[], object], target: str | None = None) -> CdpClient:
        """A new client, for the browser as a whole or for one page. Raises SandboxError."""
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
            params = Raw(json.encode(_Named(client.session)))
            try:
                self.write(CdpMessage(0, "Target.detachFromTarget", params))
            except SandboxError:
                pass

    def write(self, message: CdpMessage) -> None:
        """Sends a message. Raises SandboxError when the browser has ended; ends one that has stopped reading."""
        data = json.encode(message) + b"\0"
        if not self._writing.acquire(timeout=PATIENCE):
            raise SandboxError("the browser inside does not read its input")
        try:
            self._process.write_within(data, PATIENCE)
        except TimeoutError:
            self.close()
            raise SandboxError("the browser inside does not read its input: it was ended") from None
        except OSError:
            raise SandboxError("the browser inside has ended") from None
        finally:
            self._writing.release()

    def close(self) -> None:
        """Ends the browser. Idempotent."""
        self.over = True  # at once, not when the reader notices: the next use starts another browser
        self._process.close()

    # -- messages from the browser

    def _read(self) -> None:
        try:
            self._listen()
        except (SandboxError, OSError, *_NO_MESSAGE):
            pass  # the browser has ended, or sent nonsense
        finally:
            self._leave_all()

    def _listen(self) -> None:
        held, looked = bytearray(), 0
        while looked <= MOST_BYTES and (data := self._process.read(2**20)):
            held += data
            while (at := held.find(b"\0", looked)) >= 0:
                self._heard(held[:at])
                del held[: at + 1]
                looked = 0
            looked = len(held)

    def _leave_all(self) -> None:
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

    def _heard(self, data: bytearray) -> None:
        message = _message.decode(data)
        session = message.sessionId
        if session is UNSET:
            waiting = self._waiting.get(message.id) if message.id is not UNSET else None
            if waiting is not None and not waiting[1]:
                waiting[1].append(message)
                waiting[0].set()
            return
        client = self.owner(session)
        if client is None:
            return
        self._follow_sessions(message, client)
        if session == client.session:
            message.sessionId = UNSET
        client.tell(json.encode(message).decode())

    def _follow_sessions(self, message: CdpMessage, client: CdpClient) -> None:
        """Notes that a session opened by a client's session belongs to that client, too."""
        if message.params is UNSET or message.method not in ("Target.attachedToTarget", "Target.detachedFromTarget"):
            return
        session = _named.decode(message.params).sessionId
        with self._lock:
            if message.method == "Target.detachedFromTarget":
                if self._owners.get(session) is client:
                    del self._owners[session]
            elif len(self._owners) < MOST_SESSIONS:
                self._owners.setdefault(session, client)


def _result(answer: CdpMessage, method: str) -> dict[str, Any]:
    """The result in an answer to us. Raises SandboxError."""
    try:
        if answer.result is not UNSET and len(memoryview(answer.result)) <= MOST_RESULT:
            return json.decode(answer.result, type=dict[str, Any])
    except _NO_MESSAGE:
        pass
    raise SandboxError("the browser inside refused {method}", method=method)
