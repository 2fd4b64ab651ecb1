"""The socket in a sandbox's registry entry: the same JSON-RPC, for the same user only.

Light to import, because every sandbox listens: the protocol itself is imported when somebody connects.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from _weakref import ref
from threading import Lock, Thread

from sandbox.readiness import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.rpc.slot import Slot
    from sandbox.sandbox import Sandbox

_CONNECTIONS = 64
_NOT_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)


class Listener:
    """Accepts connections on `path` until `close`."""

    def __init__(self, path: str, sandbox: Sandbox) -> None:
        self._sandbox = ref(sandbox)  # to be listened for does not keep a sandbox alive
        self._place: Slot | None = None
        self._connections: set[socket.socket] = set()
        self._lock = Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.fchmod(self._socket.fileno(), 0o600)  # before it has a name, so that there is no moment in between
        self._socket.bind(path)
        os.chmod(path, 0o600)  # for an umask that would lock out the owner too
        self._socket.listen(16)
        self._socket.setblocking(False)
        self._closed = False
        self._watch = Watch([self._socket], self._knock)

    def close(self) -> None:
        """No new connections; those there are hear nothing more once their requests are answered."""
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
        Thread(target=self._accept, name="sandbox-socket", daemon=True).start()

    def _accept(self) -> None:
        """Lets in everybody who waits, and watches again."""
        while True:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                with self._lock:
                    if not self._closed:
                        self._watch = Watch([self._socket], self._knock)
                return
            except OSError as problem:
                if problem.errno in _NOT_OURS:
                    time.sleep(0.1)  # out of descriptors, say: the socket itself is well
                    continue
                return
            connection.setblocking(True)
            sandbox = self._sandbox()
            if sandbox is None or len(self._connections) >= _CONNECTIONS or not _same_user(connection):
                connection.close()
                continue
            with self._lock:
                self._connections.add(connection)
            Thread(target=self._serve, args=(connection, sandbox), daemon=True).start()
            del sandbox

    def _serve(self, connection: socket.socket, sandbox: Sandbox) -> None:
        from sandbox.rpc.session import Session
        from sandbox.rpc.slot import Slot

        with self._lock:
            if self._place is None:  # shared, so that who joins a terminal finds it
                self._place = Slot(sandbox)
        session = Session(connection.fileno(), connection.fileno(), self._place)
        unsubscribe = sandbox.on_event(session.events.put)
        try:
            session.run()
        finally:
            unsubscribe()
            with self._lock:
                self._connections.discard(connection)
                if not self._connections and not self._place.terminals:
                    self._place = None
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side was faster
            session.writer.close()
            connection.close()


def _same_user(connection: socket.socket) -> bool:
    """The directory's mode says so already; the kernel's word does not depend on it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.geteuid())
