"""Files inside, from outside: the part of `Sandbox` that reads and changes them.

Every operation has a tenant's rights and goes through descriptors that the guest opened: whatever links are in a path,
it cannot lead where a tenant could not go.
"""

from __future__ import annotations

import errno
import os
import stat

from sandbox.errors import SandboxClosed, SandboxError
from sandbox.file_methods import FILE_LIMIT, PIECE, FileMethods

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sandbox.arguments import Path
    from sandbox.engines.base import Running
    from sandbox.info import FileInfo
    from sandbox.plan.plan import Plan


class Files(FileMethods):
    """What `Sandbox` can do with files. Only `Sandbox` derives from it, and sets the attributes declared here."""

    _plan: Plan
    _running: Running
    _closed: bool

    def read_file(self, path: Path, max_bytes: int = FILE_LIMIT) -> bytes:
        """Returns the content of a file inside. Raises OSError, also when it has more than `max_bytes` bytes."""
        parts, room = [], max_bytes
        for part in self._read_pieces(path):
            parts.append(part)
            room -= len(part)
            if room < 0:
                raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", os.fspath(path))
        return b"".join(parts)

    def write_file(self, path: Path, content: bytes | str, mode: int = 0o644) -> None:
        """Makes a file inside, with permissions `mode`, or replaces the content of one that exists. Raises OSError."""
        data = memoryview(content.encode() if isinstance(content, str) else content)
        self._write_pieces(path, iter((data,)), mode)

    def list_files(self, path: Path = ".") -> list[FileInfo]:
        """Returns what is in a directory inside. Links are not followed. Raises OSError."""
        from sandbox.info import FileInfo, kind_of

        answer = self._file("list", path)
        if answer.get("cut"):
            raise SandboxError("{path} has too many entries to list at once", path=os.fspath(path))
        return [
            FileInfo(os.fsdecode(name), kind_of(mode), size, stat.S_IMODE(mode), mtime_ns)
            for name, mode, size, mtime_ns in answer["entries"]
        ]

    def stat(self, path: Path) -> FileInfo:
        """Returns what a path inside is; a link is followed. Raises OSError."""
        from sandbox.info import FileInfo, kind_of

        answer = self._file("stat", path, follow=True)
        name, mode = os.path.basename(os.path.normpath(os.fspath(path))), answer["mode"]
        return FileInfo(name, kind_of(mode), answer["size"], stat.S_IMODE(mode), answer["mtime_ns"])

    def mkdir(self, path: Path, mode: int = 0o755, parents: bool = True) -> None:
        """Makes a directory inside; with `parents`, also those above it, and one that exists is no error.

        Raises OSError.
        """
        self._file("mkdir", path, mode=mode & 0o777, parents=parents)

    def remove(self, path: Path, recursive: bool = False) -> None:
        """Removes a file, link or empty directory inside; with `recursive`, any directory. Raises OSError."""
        self._file("remove", path, recursive=recursive)

    def rename(self, old: Path, new: Path) -> None:
        """Renames inside, replacing a file that is at `new`. Raises OSError."""
        self._file("rename", old, to=self._path(new))

    def chmod(self, path: Path, mode: int) -> None:
        """Changes the permissions of a file or directory inside; a link is followed. Raises OSError."""
        self._file("chmod", path, mode=mode & 0o777)

    def symlink(self, target: Path, path: Path) -> None:
        """Makes `path` inside a symbolic link to `target`, which is kept as it is given. Raises OSError."""
        self._file("symlink", path, target=os.fsencode(target))

    def read_link(self, path: Path) -> str:
        """Returns where a symbolic link inside points to. Raises OSError (EINVAL) when it is not a link."""
        return os.fsdecode(self._file("readlink", path)["target"])

    # -- by descriptor where the host can have one, else piece by piece through the guest

    def _open_file(self, path: Path, flags: int, mode: int = 0o644) -> int:
        """A descriptor of a regular file inside. Raises OSError as `os.open` does, and for anything else.

        EXDEV means that only tenants can open it, or that no descriptor can leave the sandbox. Then `_read_at` and
        `_write_at` move the content in pieces.
        """
        self._used()
        _, fds = self._running.file("open", self._path(path), flags=flags, mode=mode & 0o777)
        (fd,) = fds
        try:
            found = os.fstat(fd).st_mode
        except PermissionError:
            # The kernel lets only tenants into their FUSE mount, not even us, who serve it.
            os.close(fd)
            raise OSError(errno.EXDEV, "served by a provider: use read_file and write_file", os.fspath(path)) from None
        if not stat.S_ISREG(found):
            os.close(fd)
            if stat.S_ISDIR(found):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        os.set_blocking(fd, True)
        return fd

    def _read_pieces(self, path: Path) -> Iterator[bytes]:
        try:
            fd = self._open_file(path, os.O_RDONLY)
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise
            yield from self._read_at(path)
            return
        with os.fdopen(fd, "rb", buffering=0) as file:
            while part := file.read(PIECE):
                yield part

    def _write_pieces(self, path: Path, pieces: Iterator[memoryview], mode: int) -> None:
        try:
            fd = self._open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise
            self._write_at(path, 0, memoryview(b""), mode)
            at = 0
            for data in pieces:
                if data:
                    self._write_at(path, at, data, mode, truncate=False)
                at += len(data)
            return
        with os.fdopen(fd, "wb", buffering=0) as file:
            for data in pieces:
                while data:
                    data = data[file.write(data) :]

    def _read_at(self, path: Path, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """`length` bytes from `offset` on (None: to the end), piece by piece. Raises OSError."""
        while length is None or length > 0:
            size = PIECE if length is None else min(length, PIECE)
            data = self._file("read", path, offset=offset, size=size)["data"]
            if not data:
                return
            yield data
            offset += len(data)
            length = None if length is None else length - len(data)

    def _write_at(self, path: Path, offset: int, data: memoryview, mode: int = 0o644, truncate: bool = True) -> None:
        """Writes `data` at `offset`; at 0 the file is emptied first, unless `truncate` is false. Raises OSError."""
        for at in range(0, len(data) or 1, PIECE):
            where = {"offset": offset + at, "truncate": truncate and offset + at == 0}
            self._file("write", path, data=bytes(data[at : at + PIECE]), mode=mode & 0o777, **where)

    def _file(self, operation: str, path: Path, **more: object) -> dict[str, Any]:
        self._used()
        return self._running.file(operation, self._path(path), **more)[0]

    def _used(self) -> None:
        """Notes that the sandbox is in use. Raises SandboxClosed."""
        if self._closed:
            raise SandboxClosed("the sandbox is closed")

    def _path(self, path: Path) -> bytes:
        # Not normalised: `a/../b` means what it means inside, where `a` may be a link.
        return os.fsencode(os.path.join(self._plan.directory, path))
