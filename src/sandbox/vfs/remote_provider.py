"""A provider at the other end of a stream: what `provider_server.py` serves, as a `Provider` again."""

from __future__ import annotations

import errno
import os
from threading import Lock
from typing import TYPE_CHECKING

from sandbox.vfs import protocol
from sandbox.vfs.protocol import BrokenFrame, Message, ProviderOp
from sandbox.vfs.provider import Changes, DirEntry, FileInfo, Handle, Provider, Space, failure

if TYPE_CHECKING:
    import socket
    from typing import Any, Unpack


class _RemoteHandle(Handle):
    __slots__ = ("_number", "_provider")

    def __init__(self, provider: RemoteProvider, number: int) -> None:
        self._provider = provider
        self._number = number

    def read(self, size: int, offset: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            wanted = min(size, protocol.MOST_DATA)
            part = protocol.data(self._provider._ask(ProviderOp.READ, fh=self._number, off=offset, sz=wanted))
            if len(part) > wanted:
                raise failure(errno.EIO)
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
            if len(part) < wanted:
                break
        return b"".join(parts)

    def write(self, data: memoryview, offset: int) -> int:
        done = 0
        while done < len(data):
            part = bytes(data[done : done + protocol.MOST_DATA])
            answer = self._provider._ask(ProviderOp.WRITE, fh=self._number, off=offset + done, data=part)
            written = protocol.number(answer, "written", len(part))
            if not written:
                break
            done += written
        return done

    def sync(self) -> None:
        self._provider._ask(ProviderOp.FSYNC, fh=self._number)

    def flush(self) -> None:
        self._provider._ask(ProviderOp.FLUSH, fh=self._number)

    def close(self) -> None:
        self._provider._ask(ProviderOp.RELEASE, fh=self._number)

    def stat(self) -> FileInfo:
        return protocol.stat(self._provider._ask(ProviderOp.GETATTR, fh=self._number).get("stat"))

    def setattr(self, **changes: Unpack[Changes]) -> None:
        self._provider._ask(ProviderOp.SETATTR, fh=self._number, set=dict(changes))


class RemoteProvider(Provider):
    """Speaks over `stream`, which it owns from now on. Raises BrokenFrame when the other side does not speak our
    protocol."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._lock = Lock()
        hello = self._ask(ProviderOp.HELLO, fh=protocol.VERSION)
        if protocol.number(hello, "fh") != protocol.VERSION:
            raise BrokenFrame("the server speaks another version")
        flags = protocol.number(hello, "flags")
        self.readonly, self.xattrs = bool(flags & 1), bool(flags & 2)
        self.flushes = True

    def stat(self, path: str) -> FileInfo:
        return protocol.stat(self._ask(ProviderOp.LOOKUP, path).get("stat"))

    def readdir(self, path: str) -> list[DirEntry]:
        found: list[DirEntry] = []
        while True:
            entries = self._ask(ProviderOp.READDIR, path, off=len(found)).get("entries", [])
            if not isinstance(entries, list):
                raise BrokenFrame("entries is not a list")
            found += [protocol.entry(one) for one in entries]
            if len(entries) < protocol.MOST_ENTRIES:
                return found

    def open(self, path: str, flags: int, mode: int = 0) -> Handle:
        meant = flags & (os.O_ACCMODE | os.O_TRUNC)
        return _RemoteHandle(self, protocol.number(self._ask(ProviderOp.OPEN, path, flags=meant), "fh"))

    def create(self, path: str, mode: int) -> Handle:
        return _RemoteHandle(self, protocol.number(self._ask(ProviderOp.CREATE, path, mode=mode), "fh"))

    def mkdir(self, path: str, mode: int) -> None:
        self._ask(ProviderOp.MKDIR, path, mode=mode)

    def mknod(self, path: str, mode: int) -> None:
        self._ask(ProviderOp.MKNOD, path, mode=mode)

    def remove(self, path: str) -> None:
        try:
            self._ask(ProviderOp.UNLINK, path)
        except IsADirectoryError:
            self._ask(ProviderOp.RMDIR, path)

    def rename(self, old: str, new: str) -> None:
        self._ask(ProviderOp.RENAME, old, to=protocol.packed_name(new))

    def link(self, path: str, new: str) -> None:
        self._ask(ProviderOp.LINK, path, to=protocol.packed_name(new))

    def symlink(self, target: str, link: str) -> None:
        self._ask(ProviderOp.SYMLINK, link, to=protocol.packed_name(target))

    def readlink(self, path: str) -> str:
        return protocol.name(self._ask(ProviderOp.READLINK, path), "target")

    def setattr(self, path: str, **changes: Unpack[Changes]) -> None:
        self._ask(ProviderOp.SETATTR, path, set=dict(changes))

    def statfs(self) -> Space:
        return protocol.space(self._ask(ProviderOp.STATFS).get("space"))

    def getxattr(self, path: str, name: str) -> bytes:
        return protocol.data(self._ask(ProviderOp.GETXATTR, path, name=protocol.packed_name(name)))

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        if len(value) > protocol.MOST_DATA:
            raise failure(errno.E2BIG, path)
        self._ask(ProviderOp.SETXATTR, path, name=protocol.packed_name(name), data=value, flags=flags)

    def listxattr(self, path: str) -> list[str]:
        names = self._ask(ProviderOp.LISTXATTR, path).get("names", [])
        if not isinstance(names, list):
            raise BrokenFrame("names is not a list")
        return [protocol.name({"name": one}, "name") for one in names]

    def removexattr(self, path: str, name: str) -> None:
        self._ask(ProviderOp.REMOVEXATTR, path, name=protocol.packed_name(name))

    def close(self) -> None:
        self._stream.close()

    def _ask(self, op: ProviderOp, path: str | None = None, **fields: Any) -> Message:
        request: Message = {"op": int(op), **fields}
        if path is not None:
            request["path"] = protocol.packed_name(path)
        with self._lock:
            try:
                protocol.send(self._stream, request)
                answer = protocol.receive(self._stream)
            except OSError as problem:
                raise failure(errno.ENOTCONN) from problem
            except BrokenFrame:
                self._stream.close()  # nobody knows where the next answer begins
                raise
        if answer is None:
            raise failure(errno.ENOTCONN)
        number = answer.get("err", 0)
        if type(number) is not int or not -4096 < number <= 0:
            raise BrokenFrame("err is no errno")
        if number:
            raise failure(-number, path)
        return answer
