"""The file methods that are built from other methods: the same for a sandbox in this process and in another one."""

from __future__ import annotations

import errno
import os
from abc import abstractmethod

from sandbox.command_methods import CommandMethods
from sandbox.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.arguments import Path
    from sandbox.info import FileInfo, GrepMatch, PatchedFile

FILE_LIMIT = 2**30
PIECE = 2**20
TEXT_MOST = 64 * 2**20  # bytes of a file that is edited


class FileMethods(CommandMethods):
    """Text, whole directories, edits and searches, built on the operations on single files."""

    def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the content of a file inside as text. Raises OSError, and UnicodeDecodeError."""
        return self.read_file(path).decode(encoding, errors)

    def write_text(self, path: Path, text: str, encoding: str = "utf-8", mode: int = 0o644) -> None:
        """Makes a file inside, or replaces its content, with text. Raises OSError, and UnicodeEncodeError."""
        self.write_file(path, text.encode(encoding), mode)

    def exists(self, path: Path) -> bool:
        """Whether there is something at `path` inside; a link counts when it leads to something.

        Raises OSError for any other problem than "not there", such as missing permission.
        """
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def upload(self, source: Path, target: Path) -> list[str]:
        """Copies a file or directory of the host to `target` inside, replacing files that are there.

        A directory's content is added to what is in `target`. Links below `source` are made again as links, never
        followed; permissions of files are kept. Returns what was left out because it is not a file, directory or link.
        Raises OSError; what was copied before the error stays.
        """
        from sandbox.transfer import upload

        return upload(self, source, target)

    def download(self, source: Path, target: Path, *, max_bytes: int = 16 * 2**30) -> list[str]:
        """Copies a file or directory inside to `target` on the host, replacing files that are there.

        As `upload`, in the other direction. Nothing is ever written through a link in `target`, nor outside it. What is
        copied comes from untrusted programs, including links, which may point anywhere. They also decide how much there
        is: copying ends with OSError (EFBIG) at `max_bytes`, each file counted with 4 KiB besides its content, or at a
        million files. Raises OSError; what was copied before the error stays.
        """
        from sandbox.transfer import download

        return download(self, source, target, max_bytes)

    # -- what models call most

    def edit(self, path: Path, old: str, new: str, replace_all: bool = False) -> int:
        """Replaces `old` with `new` in a text file inside, and returns how many times.

        `old` must occur, and only once unless `replace_all` is set; otherwise nothing is changed. Permissions are kept.
        In a file whose lines end with CR LF, an `old` with plain line ends is found, too, and the ends of `new` become
        the file's. Raises InvalidArgument, OSError, and UnicodeDecodeError when the file is not UTF-8.
        """
        text = self.read_file(path, TEXT_MOST).decode()
        count = text.count(old) if old else 0
        if count == 0 and "\n" in old and "\r\n" in text and "\r" not in old + new:
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
            count = text.count(old)
        if count == 0:
            raise InvalidArgument("{path} does not contain that text", path=path)
        if count > 1 and not replace_all:
            raise InvalidArgument(
                "{path} contains that text {count} times: give more of what is around it, or replace_all",
                path=path,
                count=count,
            )
        if len(text) + count * (len(new) - len(old)) > TEXT_MOST:  # it could have places enough to fill all memory
            raise OSError(errno.EFBIG, f"would be larger than {TEXT_MOST} bytes", os.fspath(path))
        self.write_file(path, text.replace(old, new).encode(), self.stat(path).mode)
        return count

    def apply_patch(self, patch: str, path: Path = ".") -> list[PatchedFile]:
        """Applies a patch to files below `path` inside: a unified diff, or `*** Begin Patch` as Codex writes.

        Every file is read and every change tried before the first one is written: a patch that does not fit changes
        nothing. Returns what was added, updated, deleted or moved. Raises InvalidArgument, naming the part that does
        not fit, OSError, and UnicodeDecodeError.
        """
        from sandbox.patches.apply import apply_patch

        return apply_patch(self, patch, str(path))

    def glob(self, pattern: str, path: Path = ".", limit: int = 1000) -> list[str]:
        """Returns the paths below `path` inside that match, in order: `*.py`, `src/**/*.ts`, `**/test_?.py`.

        `*` stays within a name and `**` crosses directories. Links are not followed, and `.git` is left out unless the
        pattern names it. At most `limit` paths are returned. Raises OSError, InvalidArgument.
        """
        from sandbox.file_search import glob

        return glob(self, pattern, str(path), limit)

    def tree(self, path: Path = ".", depth: int = 3, limit: int = 500) -> str:
        """Returns what is below `path` inside as an indented text, at most `depth` levels and `limit` lines.

        Raises OSError.
        """
        from sandbox.file_search import tree

        return tree(self, str(path), depth, limit)

    def grep(
        self, pattern: str, path: Path = ".", *, glob: str | None = None, ignore_case: bool = False, limit: int = 200
    ) -> list[GrepMatch]:
        """Returns the lines of a file, or of those below a directory, that match an extended regular expression.

        At most `limit` of them. `grep -E` does the search inside, limited to 1 GiB of memory and a minute. `glob`
        limits it to files with such names. Binary files and `.git` are left out, long lines are cut. Raises
        InvalidArgument for an expression that grep cannot read, OSError, CommandError where there is no grep, and
        SandboxClosed.
        """
        from sandbox.file_search import grep

        found = grep(self.exec, pattern, str(path), glob, ignore_case, limit)
        if not found:
            self.stat(path)  # a path that is wrong is not one in which nothing matches
        return found

    # -- what those are built from

    @abstractmethod
    def read_file(self, path: Path, max_bytes: int = FILE_LIMIT) -> bytes:
        """Returns the content of a file inside. Raises OSError, also when it has more than `max_bytes` bytes."""

    @abstractmethod
    def write_file(self, path: Path, content: bytes | str, mode: int = 0o644) -> None:
        """Makes a file inside, with permissions `mode`, or replaces the content of one that exists. Raises OSError."""

    @abstractmethod
    def list_files(self, path: Path = ".") -> list[FileInfo]:
        """Returns what is in a directory inside. Links are not followed. Raises OSError."""

    @abstractmethod
    def stat(self, path: Path) -> FileInfo:
        """Returns what a path inside is; a link is followed. Raises OSError."""

    @abstractmethod
    def mkdir(self, path: Path, mode: int = 0o755, parents: bool = True) -> None:
        """Makes a directory inside; with `parents`, also those above it, and one that exists is no error.

        Raises OSError.
        """

    @abstractmethod
    def remove(self, path: Path, recursive: bool = False) -> None:
        """Removes a file, link or empty directory inside; with `recursive`, any directory. Raises OSError."""

    @abstractmethod
    def chmod(self, path: Path, mode: int) -> None:
        """Changes the permissions of a file or directory inside; a link is followed. Raises OSError."""

    @abstractmethod
    def symlink(self, target: Path, path: Path) -> None:
        """Makes `path` inside a symbolic link to `target`, which is kept as it is given. Raises OSError."""

    @abstractmethod
    def read_link(self, path: Path) -> str:
        """Returns where a symbolic link inside points to. Raises OSError (EINVAL) when it is not a link."""

    @abstractmethod
    def _read_pieces(self, path: Path) -> Iterator[bytes]:
        """A file's content, in pieces."""

    @abstractmethod
    def _write_pieces(self, path: Path, pieces: Iterator[memoryview], mode: int) -> None:
        """Makes or replaces a file with that content."""
