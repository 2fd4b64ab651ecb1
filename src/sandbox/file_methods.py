"""The file methods that are made of other file methods: the same for a sandbox here and one in another process."""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.arguments import Path
    from sandbox.info import FileInfo

FILE_LIMIT = 2**30
PIECE = 2**20


class FileMethods(ABC):
    """Text, existence and whole directories, on top of what a sandbox can do with single files."""

    def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the content of a file inside as text. Raises OSError, and UnicodeDecodeError."""
        return self.read_file(path).decode(encoding, errors)

    def write_text(self, path: Path, text: str, encoding: str = "utf-8", mode: int = 0o644) -> None:
        """Makes a file inside, or replaces its content, with text. Raises OSError, and UnicodeEncodeError."""
        self.write_file(path, text.encode(encoding), mode)

    def exists(self, path: Path) -> bool:
        """Whether there is something at `path` inside; a link counts when it leads to something.

        Raises OSError for anything but "not there", as when a tenant may not look.
        """
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def upload(self, source: Path, target: Path) -> list[str]:
        """Copies a file or directory of the host to `target` inside, replacing files that are there.

        A directory's content is added to what is in `target`. Links below `source` are made again as links, never
        followed; permissions of files are kept. Returns what was left out, because it is no file, directory or link.
        Raises OSError; what has been copied until then stays.
        """
        from sandbox.transfer import upload

        return upload(self, source, target)

    def download(self, source: Path, target: Path) -> list[str]:
        """Copies a file or directory inside to `target` on the host, replacing files that are there.

        As `upload`, the other way. Nothing is ever written through a link that is in `target`, nor outside it. What is
        copied comes from untrusted programs, links that point elsewhere included. Raises OSError.
        """
        from sandbox.transfer import download

        return download(self, source, target)

    # -- what those are made of

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
        """Makes a directory inside; with `parents` those above it too, and one that is there is no error.

        Raises OSError.
        """

    @abstractmethod
    def remove(self, path: Path, recursive: bool = False) -> None:
        """Removes a file, a link or an empty directory inside; with `recursive` all that is in one. Raises OSError."""

    @abstractmethod
    def chmod(self, path: Path, mode: int) -> None:
        """Changes the permissions of a file or directory inside; a link is followed. Raises OSError."""

    @abstractmethod
    def symlink(self, target: Path, path: Path) -> None:
        """Makes `path` inside a symbolic link to `target`, which is kept as it is given. Raises OSError."""

    @abstractmethod
    def read_link(self, path: Path) -> str:
        """Returns where a symbolic link inside points to. Raises OSError (EINVAL) when it is no link."""

    @abstractmethod
    def _read_pieces(self, path: Path) -> Iterator[bytes]:
        """A file's content, in pieces."""

    @abstractmethod
    def _write_pieces(self, path: Path, pieces: Iterator[memoryview], mode: int) -> None:
        """Makes or replaces a file of such content."""
