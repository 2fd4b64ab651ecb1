"""The socket in a sandbox's registry entry: the same JSON-RPC, for the same user only.

Quick to import, because every sandbox listens: the protocol itself is imported when a client connects.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import RLock  # `threading` is imported when a client connects
from _weakref import ref

from sandbox import sockets as socket
from sandbox.readiness import Watch
from sandbox.sockets import TEMPORARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket as StandardSocket
    from threading import Condition

    from sandbox.rpc.current_sandbox import CurrentSandbox
    from sandbox.sandbox import Sandbox

_CONNECTIONS = 64
_LAST_ANSWERS = 1.0  # seconds


class SocketListener:
    """Accepts connections on `path` until `close`."""

    def __init__(self, path: str, sandbox: Sandbox) -> None:
        self._sandbox = ref(sandbox)  # a listener does not keep its sandbox alive
        self._current: CurrentSandbox | None = None
        self._connections: set[StandardSocket] = set()
        self._lock = RLock()
        self._changed: Condition | None = None  # set by the first connection
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if sys.platform == "linux":  # macOS refuses this; until the chmod, only the entry's own mode (0700) protects it
            os.fchmod(self._socket.fileno(), 0o600)  # before it has a name, so that it is never open to others
        self._socket.bind(path)
        os.chmod(path, 0o600)  # in case the umask locks out even the owner
        self._socket.listen(16)
        self._socket.setblocking(False)
        self._closed = False
        self._watch = Watch([self._socket], self._knock)

    def close(self) -> None:
        """Accepts no more connections and reads no more requests; running requests are still answered."""
        with self._lock:
            self._closed = True
            self._watch.cancel()
            self._socket.close()
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RD)
                except OSError:
                    pass

    def _knock(self) -> None:
        from threading import Condition, Thread

        with self._lock:
            if self._changed is None:
                self._changed = Condition(self._lock)
        Thread(target=self._accept, name="sandbox-socket", daemon=True).start()

    def drain(self) -> None:
        """Waits until every connection has been sent its last answer, for at most a second."""
        until = time.monotonic() + _LAST_ANSWERS
        with self._lock:
            while self._changed is not None and self._connections and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)

    def _accept(self) -> None:
        """Accepts every waiting connection, then watches the socket again."""
        while True:
            try:
                connection = socket.accept(self._socket)
            except BlockingIOError:
                with self._lock:
                    if not self._closed:
                        self._watch = Watch([self._socket], self._knock)
                return
            except OSError as problem:
                if problem.errno in TEMPORARY:
                    time.sleep(0.1)  # out of descriptors, say: the socket itself still works
                    continue
                return
            try:
                admitted = self._admitted(connection)
            except (OSError, RuntimeError):  # RuntimeError: no thread can be started
                admitted = False
            if not admitted:
                with self._lock:
                    self._connections.discard(connection)
                connection.close()

    def _admitted(self, connection: StandardSocket) -> bool:
        """Starts to serve the connection. Returns False for one that is refused. Raises OSError and RuntimeError."""
        from threading import Thread

        from sandbox.rpc.same_user import same_user

        connection.setblocking(True)
        sandbox = self._sandbox()
        if sandbox is None or len(self._connections) >= _CONNECTIONS or not same_user(connection):
            return False
        with self._lock:
            self._connections.add(connection)
        Thread(target=self._serve, args=(connection, sandbox), daemon=True).start()
        return True

    def _serve(self, connection: StandardSocket, sandbox: Sandbox) -> None:
        from sandbox.rpc.current_sandbox import CurrentSandbox
        from sandbox.rpc.session import RpcSession

        try:
            with self._lock:
                if self._current is None:  # shared: all connections together have one budget
                    self._current = CurrentSandbox(sandbox)
                current = self._current
            try:
                session = RpcSession(connection.fileno(), connection.fileno(), current)
            except OSError:
                return  # out of descriptors: closing tells the client
            unsubscribe = sandbox.on_event(session.events.put)
            try:
                session.run()
            finally:
                unsubscribe()
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the other side closed it first
                session.writer.close()
        finally:
            self._left(connection)

    def _left(self, connection: StandardSocket) -> None:
        connection.close()
        with self._lock:
            self._connections.discard(connection)
            if not self._connections:
                self._current = None  # it holds the sandbox
            assert self._changed is not None
            self._changed.notify_all()
