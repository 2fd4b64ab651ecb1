"""Serves any provider over a stream, to whatever mounts it elsewhere, such as a microVM.

The other side is hostile. A frame that breaks the protocol ends its connection and closes what it had open. A request
that cannot be done, or that no provider can accept (a NUL in a path), is answered with an errno, and the connection
stays: one tenant's request must not cost all of them the connection. Paths are checked here, before a provider sees
them.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
from threading import Lock, Thread
from typing import TYPE_CHECKING, cast

from sandbox.vfs import protocol
from sandbox.vfs.protocol import BrokenFrame, Message, ProviderOp
from sandbox.vfs.provider import clean, failure
from sandbox.vfs.readonly import ReadonlyProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.vfs.provider import Changes, Handle, Provider

MOST_HANDLES = 4096
MOST_CONNECTIONS = 64
_CHANGES = ("mode", "uid", "gid", "size", "atime_ns", "mtime_ns")


class ProviderServer:
    """Serves `provider` to everyone who connects to `listener`, each in a thread, until `close`."""

    def __init__(self, provider: Provider, listener: socket.socket) -> None:
        # A provider may only declare that it is read-only: no change may reach it.
        self._provider = ReadonlyProvider(provider) if provider.readonly else provider
        self._listener = listener
        self._lock = Lock()
        self._connections: set[socket.socket] = set()
        self._closed = False
        self._thread = Thread(target=self._accept, name="sandbox-vfs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends every connection. The provider stays the caller's."""
        with self._lock:
            self._closed = True
            living = list(self._connections)
        for stream in (self._listener, *living):
            try:
                stream.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                full = self._closed or len(self._connections) >= MOST_CONNECTIONS
                if not full:
                    self._connections.add(stream)
            if full:
                stream.close()
                continue
            Thread(target=self._serve, args=(stream,), name="sandbox-vfs-line", daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        try:
            serve(self._provider, stream)
        finally:
            with self._lock:
                self._connections.discard(stream)
            stream.close()


def serve(provider: Provider, stream: socket.socket) -> None:
    """Answers on one connection until it ends or breaks the protocol."""
    line = _Line(provider)
    try:
        while (request := protocol.receive(stream)) is not None:
            protocol.send(stream, line.answer(request))
    except (BrokenFrame, OSError):
        pass
    finally:
        line.close()


class _Line:
    """One connection's open files, and what each operation does."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._handles: dict[int, Handle] = {}
        self._numbers = itertools.count(1)
        self._greeted = False

    def answer(self, request: Message) -> Message:
        """Does one request. Raises BrokenFrame for one that is not in the protocol."""
        op = protocol.number(request, "op", 255)
        reply: Message = {"err": 0}
        if "id" in request:
            reply["id"] = protocol.number(request, "id")
        if not self._greeted and op != ProviderOp.HELLO:
            raise BrokenFrame("the first request is not HELLO")
        doing: Callable[[Message, Message], None] | None = None
        if op in ProviderOp._value2member_map_:
            doing = getattr(self, f"_{ProviderOp(op).name.lower()}")
        if doing is None:
            reply["err"] = -errno.ENOSYS
            return reply
        try:
            doing(request, reply)
        except Exception as problem:  # a provider's fault is an errno on the other side
            if isinstance(problem, BrokenFrame) and not self._greeted:
                raise
            wrong = -errno.EINVAL if isinstance(problem, BrokenFrame) else protocol.failure_number(problem)
            reply = {**{key: reply[key] for key in ("id",) if key in reply}, "err": wrong}
        return reply

    def close(self) -> None:
        for handle in self._handles.values():
            try:
                handle.close()
            except Exception:  # noqa: BLE001 - nobody is left to answer
                pass
        self._handles.clear()

    def _hello(self, request: Message, reply: Message) -> None:
        if not protocol.number(request, "fh"):
            raise BrokenFrame("HELLO without a version")
        self._greeted = True
        reply["fh"] = min(protocol.VERSION, protocol.number(request, "fh"))
        reply["flags"] = int(self._provider.readonly) | int(self._provider.xattrs) << 1

    def _lookup(self, request: Message, reply: Message) -> None:
        reply["stat"] = protocol.packed_stat(self._provider.stat(_path(request)))

    def _getattr(self, request: Message, reply: Message) -> None:
        if number := protocol.number(request, "fh"):
            reply["stat"] = protocol.packed_stat(self._handle(number).stat())
        else:
            self._lookup(request, reply)

    def _setattr(self, request: Message, reply: Message) -> None:
        asked = request.get("set")
        if not isinstance(asked, dict) or not set(asked) <= set(_CHANGES):
            raise BrokenFrame("set is not a map of attributes")
        changes = cast(
            "Changes",
            {key: protocol.number(asked, key, least=-(1 << 63) if key.endswith("_ns") else 0) for key in asked},
        )
        if number := protocol.number(request, "fh"):
            self._handle(number).setattr(**changes)
        else:
            self._provider.setattr(_path(request), **changes)

    def _read(self, request: Message, reply: Message) -> None:
        size = min(protocol.number(request, "sz"), protocol.MOST_DATA)
        content = self._handle(protocol.number(request, "fh")).read(size, protocol.number(request, "off"))
        if len(content) > size:
            raise failure(errno.EIO)
        reply["data"] = bytes(content)

    def _write(self, request: Message, reply: Message) -> None:
        content, offset = protocol.data(request), protocol.number(request, "off")
        reply["written"] = self._handle(protocol.number(request, "fh")).write(memoryview(content), offset)

    def _create(self, request: Message, reply: Message) -> None:
        path, mode = _path(request), protocol.number(request, "mode", 0o7777)
        self._opened(lambda: self._provider.create(path, mode), reply)

    def _open(self, request: Message, reply: Message) -> None:
        path, flags = _path(request), protocol.number(request, "flags", (1 << 31) - 1)
        self._opened(lambda: self._provider.open(path, flags & (os.O_ACCMODE | os.O_TRUNC)), reply)

    def _mkdir(self, request: Message, reply: Message) -> None:
        self._provider.mkdir(_path(request), protocol.number(request, "mode", 0o7777))

    def _mknod(self, request: Message, reply: Message) -> None:
        self._provider.mknod(_path(request), protocol.number(request, "mode", 0o177777))

    def _unlink(self, request: Message, reply: Message) -> None:
        if self._provider.stat(_path(request)).is_dir:
            raise failure(errno.EISDIR)
        self._provider.remove(_path(request))

    def _rmdir(self, request: Message, reply: Message) -> None:
        if not self._provider.stat(_path(request)).is_dir:
            raise failure(errno.ENOTDIR)
        self._provider.remove(_path(request))

    def _rename(self, request: Message, reply: Message) -> None:
        self._provider.rename(_path(request), _path(request, "to"))

    def _link(self, request: Message, reply: Message) -> None:
        self._provider.link(_path(request), _path(request, "to"))

    def _symlink(self, request: Message, reply: Message) -> None:
        self._provider.symlink(protocol.name(request, "to"), _path(request))

    def _readlink(self, request: Message, reply: Message) -> None:
        reply["target"] = protocol.packed_name(self._provider.readlink(_path(request)))

    def _release(self, request: Message, reply: Message) -> None:
        handle = self._handles.pop(protocol.number(request, "fh"), None)
        if handle is None:
            raise failure(errno.EBADF)
        handle.close()

    def _fsync(self, request: Message, reply: Message) -> None:
        self._handle(protocol.number(request, "fh")).sync()

    def _flush(self, request: Message, reply: Message) -> None:
        self._handle(protocol.number(request, "fh")).flush()

    def _readdir(self, request: Message, reply: Message) -> None:
        """The listing from entry number `off` on. Fewer than MOST_ENTRIES entries mean that it ends there."""
        offset = protocol.number(request, "off", 1_000_000)
        listing = itertools.islice(self._provider.readdir(_path(request)), offset, offset + protocol.MOST_ENTRIES)
        reply["entries"] = [protocol.packed_entry(entry) for entry in listing]

    def _statfs(self, request: Message, reply: Message) -> None:
        reply["space"] = protocol.packed_space(self._provider.statfs())

    def _getxattr(self, request: Message, reply: Message) -> None:
        reply["data"] = self._provider.getxattr(_path(request), protocol.name(request, "name"))

    def _setxattr(self, request: Message, reply: Message) -> None:
        flags = protocol.number(request, "flags", 3)
        self._provider.setxattr(_path(request), protocol.name(request, "name"), protocol.data(request), flags)

    def _listxattr(self, request: Message, reply: Message) -> None:
        reply["names"] = [protocol.packed_name(one) for one in self._provider.listxattr(_path(request))]

    def _removexattr(self, request: Message, reply: Message) -> None:
        self._provider.removexattr(_path(request), protocol.name(request, "name"))

    def _opened(self, open_it: Callable[[], Handle], reply: Message) -> None:
        if len(self._handles) >= MOST_HANDLES:
            raise failure(errno.EMFILE)
        number = next(self._numbers)
        self._handles[number] = open_it()
        reply["fh"] = number

    def _handle(self, number: int) -> Handle:
        try:
            return self._handles[number]
        except KeyError:
            raise failure(errno.EBADF) from None


def _path(request: Message, key: str = "path") -> str:
    return clean(protocol.name(request, key))
