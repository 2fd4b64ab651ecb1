"""Files inside, from outside: the part of `Sandbox` that reads and changes them.

Always with a tenant's rights and through descriptors that the guest opened: a path cannot lead where a tenant
could not go, whatever links are on it.
"""

from __future__ import annotations

import errno
import os
import stat

from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sandbox.engines.base import Running
    from sandbox.plan.plan import Plan

FILE_LIMIT = 2**30
PIECE = 2**20


class Files:
    """What `Sandbox` can do with files. It is made by `Sandbox` alone, which furnishes what is declared here."""

    _plan: Plan
    _running: Running

    def open_file(self, path: str, flags: int, mode: int = 0o644) -> int:
        """A descriptor of a regular file inside. Raises OSError as `os.open` does, and for anything else."""
        _, fds = self._running.file("open", self._path(path), flags=flags, mode=mode & 0o777)
        (fd,) = fds
        try:
            regular = stat.S_ISREG(os.fstat(fd).st_mode)
        except PermissionError:
            # The kernel lets only tenants into a FUSE mount of theirs, not even us who serve it.
            os.close(fd)
            raise OSError(errno.EXDEV, "served by a provider: use read_file and write_file", path) from None
        if not regular:
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", path)
        os.set_blocking(fd, True)
        return fd

    def read_file(self, path: str, max_bytes: int = FILE_LIMIT) -> bytes:
        """The content of a file inside. Raises OSError, also when it is larger than `max_bytes`."""
        parts, room = [], max_bytes
        for part in self._pieces(path):
            parts.append(part)
            room -= len(part)
            if room < 0:
                raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", path)
        return b"".join(parts)

    def write_file(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        """Makes or replaces the content of a file inside. Raises OSError."""
        data = memoryview(content.encode() if isinstance(content, str) else content)
        try:
            fd = self.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise
            self.write_pieces(path, 0, data, mode)
            return
        with os.fdopen(fd, "wb", buffering=0) as file:
            while data:
                data = data[file.write(data) :]

    def _pieces(self, path: str) -> Iterator[bytes]:
        """A file's content: by its descriptor, or asked for piece by piece where only tenants can open it."""
        try:
            fd = self.open_file(path, os.O_RDONLY)
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise
            yield from self.read_pieces(path)
            return
        with os.fdopen(fd, "rb", buffering=0) as file:
            while part := file.read(PIECE):
                yield part

    # Where `open_file` says EXDEV, only tenants can open the file: it is moved piece by piece through the guest.

    def read_pieces(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """`length` bytes from `offset` on (None: to the end), as they come. Raises OSError."""
        while length is None or length > 0:
            size = PIECE if length is None else min(length, PIECE)
            answer, _ = self._running.file("read", self._path(path), offset=offset, size=size)
            if not answer["data"]:
                return
            yield answer["data"]
            offset += len(answer["data"])
            length = None if length is None else length - len(answer["data"])

    def write_pieces(self, path: str, offset: int, data: memoryview, mode: int = 0o644) -> None:
        """Writes `data` at `offset`; at 0 the file is emptied first. Raises OSError."""
        for at in range(0, len(data) or 1, PIECE):
            where = {"offset": offset + at, "truncate": offset + at == 0}
            piece = bytes(data[at : at + PIECE])
            self._running.file("write", self._path(path), data=piece, mode=mode & 0o777, **where)

    def list_files(self, path: str = ".") -> list[dict[str, Any]]:
        """What is in a directory inside: name, size, mode, is_dir. Raises OSError."""
        answer, _ = self._running.file("list", self._path(path))
        if answer.get("cut"):
            raise SandboxError(f"{path} holds more entries than can be listed at once")
        return [
            {
                "name": os.fsdecode(name),
                "size": size,
                "mode": stat.S_IMODE(mode),
                "is_dir": stat.S_ISDIR(mode),
            }
            for name, mode, size, _ in answer["entries"]
        ]

    def stat(self, path: str) -> dict[str, Any]:
        """What a path inside is: size, mode, is_dir, mtime_ns. Raises OSError."""
        answer, _ = self._running.file("stat", self._path(path), follow=True)
        mode = answer["mode"]
        return {
            "size": answer["size"],
            "mode": stat.S_IMODE(mode),
            "is_dir": stat.S_ISDIR(mode),
            "mtime_ns": answer["mtime_ns"],
        }

    def mkdir(self, path: str, mode: int = 0o755, parents: bool = True) -> None:
        """Makes a directory inside. Raises OSError."""
        self._running.file("mkdir", self._path(path), mode=mode & 0o777, parents=parents)

    def remove(self, path: str, recursive: bool = False) -> None:
        """Removes a file or directory inside. Raises OSError."""
        self._running.file("remove", self._path(path), recursive=recursive)

    def rename(self, old: str, new: str) -> None:
        """Renames inside. Raises OSError."""
        self._running.file("rename", self._path(old), to=self._path(new))

    def _path(self, path: str) -> bytes:
        # Not normalised: `a/../b` means what it means inside, where `a` may be a link.
        return os.fsencode(os.path.join(self._plan.directory, path))
