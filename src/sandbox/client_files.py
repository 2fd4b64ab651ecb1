"""Files and changes of a sandbox in another process: the part of `Client` that reads and changes them."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.errors import InvalidArgument
from sandbox.file_methods import FILE_LIMIT, FileMethods
from sandbox.info import FileInfo
from sandbox.rpc.connection import Connection, Content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.arguments import Path
    from sandbox.vfs.changes import Change
    from sandbox.vfs.workspace import Applied, Workspace

_PAGE = 2 * 2**20  # large files are sent in pieces of this size
_AHEAD = 4  # pieces that are on their way at a time


class ClientFiles(FileMethods):
    """What `Client` can do with files and changes."""

    id: str
    _connection: Connection

    def read_file(self, path: Path, max_bytes: int = FILE_LIMIT) -> bytes:
        """Returns the content of a file inside. Raises OSError, also when it has more than `max_bytes` bytes."""
        whole = io.BytesIO()  # its `getvalue` makes no copy
        for size, page in self._pages(path):
            if max(size, whole.tell() + len(page)) > max_bytes:
                raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", os.fspath(path))
            whole.write(page)
        return whole.getvalue()

    def write_file(self, path: Path, content: bytes | str, mode: int = 0o644) -> None:
        """Makes a file inside, with permissions `mode`, or replaces the content of one that exists. Raises OSError."""
        view = memoryview(content.encode() if isinstance(content, str) else content)
        self._write_pieces(path, (view[at : at + _PAGE] for at in range(0, len(view), _PAGE)), mode)

    def list_files(self, path: Path = ".") -> list[FileInfo]:
        """Returns what is in a directory inside. Links are not followed. Raises OSError."""
        return [_info(one) for one in self._connection.call("list_files", {"path": _path(path)}, _Listing).files]

    def stat(self, path: Path) -> FileInfo:
        """Returns what a path inside is; a link is followed. Raises OSError."""
        found = _info(self._connection.call("stat", {"path": _path(path)}, _File))
        found.name = os.path.basename(os.path.normpath(os.fspath(path)))
        return found

    def mkdir(self, path: Path, mode: int = 0o755, parents: bool = True) -> None:
        """Makes a directory inside; with `parents`, also those above it, and one that exists is no error.

        Raises OSError.
        """
        self._connection.call("mkdir", {"path": _path(path), "mode": mode, "parents": parents})

    def remove(self, path: Path, recursive: bool = False) -> None:
        """Removes a file, link or empty directory inside; with `recursive`, any directory. Raises OSError."""
        self._connection.call("remove", {"path": _path(path), "recursive": recursive})

    def rename(self, old: Path, new: Path) -> None:
        """Renames inside, replacing a file that is at `new`. Raises OSError."""
        self._connection.call("rename", {"old": _path(old), "new": _path(new)})

    def chmod(self, path: Path, mode: int) -> None:
        """Changes the permissions of a file or directory inside; a link is followed. Raises OSError."""
        self._connection.call("chmod", {"path": _path(path), "mode": mode & 0o777})

    def symlink(self, target: Path, path: Path) -> None:
        """Makes `path` inside a symbolic link to `target`, which is kept as it is given. Raises OSError."""
        self._connection.call("symlink", {"target": _path(target), "path": _path(path)})

    def read_link(self, path: Path) -> str:
        """Returns where a symbolic link inside points to. Raises OSError (EINVAL) when it is not a link."""
        answer = self._connection.call("read_link", {"path": _path(path)}, _Target)
        return answer.target if answer.target_bytes is None else os.fsdecode(answer.target_bytes)

    # -- in pages

    def _pages(self, path: Path) -> Iterator[tuple[int, bytes]]:
        """Pages of the file's content, each with the file's size at that moment."""
        asked = {"path": _path(path), "length": _PAGE}
        first = self._connection.call("read_file", {**asked, "offset": 0}, Content)
        yield first.size, first.content
        rest = (("read_file", {**asked, "offset": at}) for at in range(_PAGE, first.size, _PAGE))
        for page in self._connection.pipelined(rest, _AHEAD, Content):
            yield page.size, page.content

    def _read_pieces(self, path: Path) -> Iterator[bytes]:
        for _, page in self._pages(path):
            yield page

    def _write_pieces(self, path: Path, pieces: Iterator[memoryview], mode: int) -> None:
        asked = {"path": _path(path), "mode": mode}
        first = next(pieces, memoryview(b""))
        self._connection.call("write_file", {**asked, "content": first, "offset": 0})

        def rest(at: int) -> Iterator[tuple[str, dict[str, Any]]]:
            for piece in pieces:
                yield "write_file", {**asked, "content": piece, "offset": at}
                at += len(piece)

        for _ in self._connection.pipelined(rest(len(first)), _AHEAD):
            pass

    # -- an overlay project's changes

    def changes(self) -> list[Change]:
        """Returns what tenants changed in an overlay project (`filesystem.overlay`), compared with the host's files.

        Works after `close`, too. Raises NotFound when the sandbox keeps no changes.
        """
        if self._connection.ended:
            return self._workspace().changes()
        from sandbox.vfs.changes import Change

        return msgspec.convert(self._connection.call("changes", {})["changes"], list[Change])

    def apply(self, paths: Sequence[str] | None = None, overwrite: bool = False) -> Applied:
        """Carries changes over to the host's files, as `Sandbox.apply`. Raises NotFound when none are kept."""
        if self._connection.ended:
            return self._workspace().apply(paths, overwrite=overwrite)
        return self._apply_reviewed(paths, overwrite, None)

    def _apply_reviewed(self, paths: Sequence[str] | None, overwrite: bool, reviewed: str | None) -> Applied:
        from sandbox.vfs.workspace import Applied

        named = None if paths is None else [_path(path) for path in paths]
        asked = {"paths": named, "overwrite": overwrite, "reviewed": reviewed}
        told = self._connection.call("apply", asked)
        return Applied(told["applied"], [(one["path"], one["reason"]) for one in told["refused"]])

    def discard(self) -> None:
        """Ends the sandbox and throws the changes away. Raises NotFound when the sandbox keeps no changes."""
        if self._connection.ended:
            self._workspace().discard()
        else:
            self._connection.call("discard", {})

    def _workspace(self) -> Workspace:
        """Where an ended sandbox of this machine keeps its changes."""
        from sandbox.config.home import home
        from sandbox.vfs.workspace import Workspace

        return Workspace.find(home(), self.id, ended=True)


class _File(msgspec.Struct):
    size: int
    mode: int
    kind: str
    mtime_ns: int
    name: str = ""
    name_bytes: bytes | None = None


class _Listing(msgspec.Struct):
    files: list[_File]


class _Target(msgspec.Struct):
    target: str
    target_bytes: bytes | None = None


def _info(told: _File) -> FileInfo:
    name = told.name if told.name_bytes is None else os.fsdecode(told.name_bytes)
    return FileInfo(name, told.kind, told.size, told.mode, told.mtime_ns)


def _path(path: Path) -> str:
    text = os.fspath(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument("JSON-RPC carries text: {text!r} is not UTF-8", text=text) from None
    return text
