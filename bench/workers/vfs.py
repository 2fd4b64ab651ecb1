"""Serves a directory until its input ends: `python -m bench.workers.vfs ours|pyfuse3 MOUNTPOINT [HOST DIRECTORY]`.

Both transports are given the very same provider, so that what differs is the transport.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from sandbox.vfs.memory import MemoryProvider
from sandbox.vfs.provider import FileInfo, Handle, Provider, join
from sandbox.vfs.realfs import RealFSProvider


def main() -> None:
    way, place, *host = sys.argv[1:]
    provider: Provider = RealFSProvider(host[0]) if host else MemoryProvider(size=2**30)
    if way == "ours":
        from sandbox.vfs.fuse.mount import Mounted

        with Mounted(place, provider):
            print("ready", flush=True)
            sys.stdin.read()
    else:
        by_pyfuse3(place, provider)


def by_pyfuse3(place: str, provider: Provider) -> None:
    """The provider behind pyfuse3, with the caching that its documentation offers."""
    import pyfuse3  # type: ignore[import-not-found]
    import trio  # type: ignore[import-not-found,unused-ignore]

    class Operations(pyfuse3.Operations):  # type: ignore[misc]
        enable_writeback_cache = provider.writeback
        supports_dot_lookup = False

        def __init__(self) -> None:
            super().__init__()
            self.paths = {pyfuse3.ROOT_INODE: "/"}
            self.handles: dict[int, Handle] = {}

        def entry(self, path: str, info: FileInfo) -> Any:
            entry = pyfuse3.EntryAttributes()
            entry.st_ino = 1 if path == "/" else info.ino
            entry.st_mode, entry.st_size, entry.st_nlink = info.mode, info.size, info.nlink
            entry.st_mtime_ns, entry.st_atime_ns, entry.st_ctime_ns = info.mtime_ns, info.atime_ns, info.ctime_ns
            entry.entry_timeout = entry.attr_timeout = 1
            self.paths[entry.st_ino] = path
            return entry

        async def lookup(self, parent: int, name: bytes, ctx: Any = None) -> Any:
            path = join(self.paths[parent], name.decode())
            try:
                return self.entry(path, provider.stat(path))
            except FileNotFoundError:
                raise pyfuse3.FUSEError(2) from None

        async def getattr(self, inode: int, ctx: Any = None) -> Any:
            try:
                return self.entry(self.paths[inode], provider.stat(self.paths[inode]))
            except FileNotFoundError:  # the kernel flushes the times of what was removed
                raise pyfuse3.FUSEError(2) from None

        async def setattr(self, inode: int, attr: Any, fields: Any, fh: int | None, ctx: Any) -> Any:
            if fields.update_size:
                provider.setattr(self.paths[inode], size=attr.st_size)
            return await self.getattr(inode)

        def opened(self, inode: int, handle: Handle) -> Any:
            number = len(self.handles) + 1
            while number in self.handles:
                number += 1
            self.handles[number] = handle
            return pyfuse3.FileInfo(fh=number, keep_cache=True)

        async def open(self, inode: int, flags: int, ctx: Any) -> Any:
            return self.opened(inode, provider.open(self.paths[inode], flags))

        async def create(self, parent: int, name: bytes, mode: int, flags: int, ctx: Any) -> Any:
            path = join(self.paths[parent], name.decode())
            handle = provider.create(path, mode)
            entry = self.entry(path, provider.stat(path))
            return self.opened(entry.st_ino, handle), entry

        async def read(self, fh: int, offset: int, size: int) -> bytes:
            return bytes(self.handles[fh].read(size, offset))

        async def write(self, fh: int, offset: int, data: bytes) -> int:
            return self.handles[fh].write(memoryview(data), offset)

        async def unlink(self, parent: int, name: bytes, ctx: Any) -> None:
            provider.remove(join(self.paths[parent], name.decode()))

        async def release(self, fh: int) -> None:
            self.handles.pop(fh).close()

        async def flush(self, fh: int) -> None:
            pass

        async def fsync(self, fh: int, datasync: bool) -> None:
            pass

    options = set(pyfuse3.default_options) | {"fsname=bench"}
    pyfuse3.init(Operations(), place, options)

    def end() -> None:
        sys.stdin.read()
        import subprocess

        subprocess.run(["umount", "-l", place], check=False)

    threading.Thread(target=end, daemon=True).start()
    print("ready", flush=True)
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    main()
