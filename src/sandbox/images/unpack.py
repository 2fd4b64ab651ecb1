"""Unpacking layers, as an ordinary user and without trusting them.

Every file is owned by the user who unpacks; setuid and setgid bits, extended attributes and device nodes are left out.
Everything else follows the OCI image specification: later layers replace files, `.wh.NAME` removes NAME of the layers
before, and `.wh..wh..opq` removes everything they had in that directory.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, BinaryIO

from sandbox.config.openat2 import O_PATH
from sandbox.errors import ImageError
from sandbox.images.tars import members
from sandbox.images.tree import ImageTree, shown

if TYPE_CHECKING:
    import tarfile

    from sandbox.images.bounds import Bounds

WHITEOUT, OPAQUE = b".wh.", b".wh..wh..opq"
LONGEST_NAME, LONGEST_PATH, LONGEST_LINK = 255, 4096, 4095
DEEPEST = 200
PIECE = 1 << 20


class Unpacker:
    """One image being unpacked into an empty directory. `skipped`: device nodes that were left out."""

    def __init__(self, directory: str, bounds: Bounds) -> None:
        self._tree = ImageTree(directory)
        self._bounds = bounds
        self._directories: dict[bytes, tuple[int, float]] = {}  # modes and times, which are set last
        self._new: set[bytes] = set()  # what the current layer added, with the directories above
        self.skipped = 0

    def layer(self, tar: BinaryIO) -> None:
        """Unpacks one layer (an open tar, not compressed) over the earlier ones. Raises ImageError."""
        self._new = set()
        try:
            for member in members(tar):
                self._bounds.entry()
                parts = _parts(member)
                if parts:
                    self._entry(member, parts, tar)
        except OSError as problem:
            raise ImageError("the image cannot be unpacked: {problem}", problem=problem.strerror) from problem

    def finish(self) -> None:
        """After the last layer: sets the modes of directories, innermost first, and closes the tree."""
        for path in sorted(self._directories, key=len, reverse=True):
            self._tree.set(path, *self._directories[path])
        self.close()

    def close(self) -> None:
        self._tree.close()

    def _entry(self, member: tarfile.TarInfo, parts: list[bytes], tar: BinaryIO) -> None:
        name = parts[-1]
        if name.startswith(WHITEOUT):
            return self._whiteout(parts)
        if member.ischr() or member.isblk():
            self.skipped += 1
            return
        with self._tree.parent(parts) as directory:
            path = self._tree.path_of(directory, name)
            if path.count(b"/") > DEEPEST:
                raise ImageError("{path} of the image is too long", path=shown(parts))
            if not (member.isdir() and _is_directory(directory, name)):
                self._tree.remove(directory, name)
                self._make(member, directory, name, tar)
            if member.isdir():
                self._directories[path] = (member.mode & 0o1777, _time(member))
            self._mark(path)

    def _make(self, member: tarfile.TarInfo, directory: int, name: bytes, tar: BinaryIO) -> None:
        if member.isdir():
            os.mkdir(name, 0o700, dir_fd=directory)
        elif member.issym():
            os.symlink(_link(member), name, dir_fd=directory)
        elif member.islnk():
            self._hard_link(member, directory, name)
        elif member.isfifo():
            os.mkfifo(name, member.mode & 0o777, dir_fd=directory)
        elif member.isreg():
            self._file(member, directory, name, tar)
        else:
            raise ImageError("{path} of the image has an unknown file type", path=shown([name]))

    def _file(self, member: tarfile.TarInfo, directory: int, name: bytes, tar: BinaryIO) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._bounds.take(member.size)
        with open(os.open(name, flags, 0o600, dir_fd=directory), "wb") as made:
            for at, size in _stretches(member):
                tar.seek(at[1])
                made.seek(at[0])
                while size:
                    piece = tar.read(min(PIECE, size))
                    if not piece:
                        raise ImageError("a layer of the image is cut short")
                    made.write(piece)
                    size -= len(piece)
            made.truncate(member.size)
            os.utime(made.fileno(), (_time(member), _time(member)))
            os.fchmod(made.fileno(), member.mode & 0o1777)

    def _hard_link(self, member: tarfile.TarInfo, directory: int, name: bytes) -> None:
        target = _split(os.fsencode(member.linkname))
        try:
            if not target:
                raise FileNotFoundError
            with self._tree.parent(target, make=False) as there:
                os.link(target[-1], name, src_dir_fd=there, dst_dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, PermissionError):
            raise ImageError("{path} of the image is a link to nothing", path=shown([name])) from None

    def _whiteout(self, parts: list[bytes]) -> None:
        try:
            with self._tree.parent(parts, make=False) as directory:
                if parts[-1] == OPAQUE:
                    return self._clear(directory)
                name = parts[-1][len(WHITEOUT) :]
                if name.startswith(WHITEOUT):
                    return  # aufs' own metadata
                if name in (b"", b".", b".."):
                    raise ImageError("{path} of the image is a whiteout that names no file", path=shown(parts))
                if self._tree.path_of(directory, name) not in self._new:
                    self._tree.remove(directory, name)
        except FileNotFoundError:
            pass  # its directory does not exist in any layer

    def _clear(self, directory: int) -> None:
        """Removes what earlier layers had in a directory; what this layer added stays."""
        listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            for entry in os.listdir(listing):
                name = os.fsencode(entry)
                if self._tree.path_of(directory, name) not in self._new:
                    self._tree.remove(directory, name)
                elif _is_directory(directory, name):
                    below = os.open(name, O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
                    try:
                        self._clear(below)
                    finally:
                        os.close(below)
        finally:
            os.close(listing)

    def _mark(self, path: bytes) -> None:
        while path and path not in self._new:
            self._bounds.path(len(path))
            self._new.add(path)
            path = path.rpartition(b"/")[0]


def _stretches(member: tarfile.TarInfo) -> list[tuple[tuple[int, int], int]]:
    """Where the data of a file is: (place in the file, place in the tar), size. A sparse file has several."""
    sparse: list[tuple[int, int]] | None = member.sparse  # type: ignore[assignment]
    if sparse is None:
        return [((0, member.offset_data), member.size)]
    found, at = [], member.offset_data
    for offset, size in sparse:
        if offset < 0 or size < 0 or offset + size > member.size:
            raise ImageError("the archive is damaged ({problem})", problem="a sparse file's map")
        found.append(((offset, at), size))
        at += size
    return found


def _parts(member: tarfile.TarInfo) -> list[bytes]:
    return _split(os.fsencode(member.name))


def _split(path: bytes) -> list[bytes]:
    """A path's parts. Raises ImageError for one that leads out, or is too long."""
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    if b".." in parts or b"\0" in path:
        raise ImageError("{path} of the image leads out of it", path=shown(parts))
    if len(path) > LONGEST_PATH or len(parts) > DEEPEST or any(len(part) > LONGEST_NAME for part in parts):
        raise ImageError("{path} of the image is too long", path=shown(parts))
    return parts


def _link(member: tarfile.TarInfo) -> bytes:
    target = os.fsencode(member.linkname)
    if not target or b"\0" in target or len(target) > LONGEST_LINK:
        raise ImageError("{path} of the image is a link to nothing", path=shown(_parts(member)))
    return target


def _time(member: tarfile.TarInfo) -> float:
    # An invalid time is no reason to refuse an image.
    when = float(member.mtime)
    return when if 0 <= when <= 2.0**33 else 0.0


def _is_directory(directory: int, name: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
