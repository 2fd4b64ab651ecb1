"""Files and changes for asyncio programs: the part of `AsyncSandbox` that reads and changes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from sandbox.file_methods import FILE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.arguments import Path
    from sandbox.async_threads import Threads
    from sandbox.info import FileInfo, GrepMatch, PatchedFile
    from sandbox.sandbox import Sandbox
    from sandbox.vfs.changes import Change
    from sandbox.vfs.workspace import Applied


class AsyncFiles(ABC):
    """What `AsyncSandbox` can do with files and changes: the methods of `Sandbox`, as coroutines."""

    _threads: Threads

    @property
    @abstractmethod
    def sync(self) -> Sandbox:
        """The sandbox itself."""

    async def read_file(self, path: Path, max_bytes: int = FILE_LIMIT) -> bytes:
        """Returns the content of a file inside. Raises OSError, also when it has more than `max_bytes` bytes."""
        return await self._threads.run(lambda: self.sync.read_file(path, max_bytes))

    async def write_file(self, path: Path, content: bytes | str, mode: int = 0o644) -> None:
        """Makes a file inside, with permissions `mode`, or replaces the content of one that exists. Raises OSError."""
        await self._threads.run(lambda: self.sync.write_file(path, content, mode))

    async def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the content of a file inside as text. Raises OSError, and UnicodeDecodeError."""
        return await self._threads.run(lambda: self.sync.read_text(path, encoding, errors))

    async def write_text(self, path: Path, text: str, encoding: str = "utf-8", mode: int = 0o644) -> None:
        """Makes a file inside, or replaces its content, with text. Raises OSError, and UnicodeEncodeError."""
        await self._threads.run(lambda: self.sync.write_text(path, text, encoding, mode))

    async def list_files(self, path: Path = ".") -> list[FileInfo]:
        """Returns what is in a directory inside. Links are not followed. Raises OSError."""
        return await self._threads.run(lambda: self.sync.list_files(path))

    async def stat(self, path: Path) -> FileInfo:
        """Returns what a path inside is; a link is followed. Raises OSError."""
        return await self._threads.run(lambda: self.sync.stat(path))

    async def exists(self, path: Path) -> bool:
        """Whether there is something at `path` inside; a link counts when it leads to something.

        Raises OSError for any other problem than "not there", such as missing permission.
        """
        return await self._threads.run(lambda: self.sync.exists(path))

    async def mkdir(self, path: Path, mode: int = 0o755, parents: bool = True) -> None:
        """Makes a directory inside; with `parents`, also those above it, and one that exists is no error.

        Raises OSError.
        """
        await self._threads.run(lambda: self.sync.mkdir(path, mode, parents))

    async def remove(self, path: Path, recursive: bool = False) -> None:
        """Removes a file, link or empty directory inside; with `recursive`, any directory. Raises OSError."""
        await self._threads.run(lambda: self.sync.remove(path, recursive))

    async def rename(self, old: Path, new: Path) -> None:
        """Renames inside, replacing a file that is at `new`. Raises OSError."""
        await self._threads.run(lambda: self.sync.rename(old, new))

    async def chmod(self, path: Path, mode: int) -> None:
        """Changes the permissions of a file or directory inside; a link is followed. Raises OSError."""
        await self._threads.run(lambda: self.sync.chmod(path, mode))

    async def symlink(self, target: Path, path: Path) -> None:
        """Makes `path` inside a symbolic link to `target`, which is kept as it is given. Raises OSError."""
        await self._threads.run(lambda: self.sync.symlink(target, path))

    async def read_link(self, path: Path) -> str:
        """Returns where a symbolic link inside points to. Raises OSError (EINVAL) when it is not a link."""
        return await self._threads.run(lambda: self.sync.read_link(path))

    async def upload(self, source: Path, target: Path) -> list[str]:
        """Copies a file or directory of the host to `target` inside, as `Sandbox.upload`. Raises OSError."""
        return await self._threads.run(lambda: self.sync.upload(source, target))

    async def download(self, source: Path, target: Path, *, max_bytes: int = 16 * 2**30) -> list[str]:
        """Copies a file or directory inside to `target` on the host, as `Sandbox.download`. Raises OSError."""
        return await self._threads.run(lambda: self.sync.download(source, target, max_bytes=max_bytes))

    # -- what models call most

    async def edit(self, path: Path, old: str, new: str, replace_all: bool = False) -> int:
        """Replaces text in a file inside, as `Sandbox.edit`. Raises InvalidArgument, OSError, UnicodeDecodeError."""
        return await self._threads.run(lambda: self.sync.edit(path, old, new, replace_all))

    async def apply_patch(self, patch: str, path: Path = ".") -> list[PatchedFile]:
        """Applies a patch to files inside, as `Sandbox.apply_patch`; raises what that raises."""
        return await self._threads.run(lambda: self.sync.apply_patch(patch, path))

    async def glob(self, pattern: str, path: Path = ".", limit: int = 1000) -> list[str]:
        """Returns the paths that match, as `Sandbox.glob`. Raises OSError, InvalidArgument."""
        return await self._threads.run(lambda: self.sync.glob(pattern, path, limit))

    async def tree(self, path: Path = ".", depth: int = 3, limit: int = 500) -> str:
        """Returns what is below `path` as an indented text, as `Sandbox.tree`. Raises OSError."""
        return await self._threads.run(lambda: self.sync.tree(path, depth, limit))

    async def grep(
        self, pattern: str, path: Path = ".", *, glob: str | None = None, ignore_case: bool = False, limit: int = 200
    ) -> list[GrepMatch]:
        """Returns the lines that match, as `Sandbox.grep`; raises what that raises."""
        return await self._threads.run(
            lambda: self.sync.grep(pattern, path, glob=glob, ignore_case=ignore_case, limit=limit)
        )

    # -- an overlay project's changes

    async def changes(self) -> list[Change]:
        """Returns what tenants changed in an overlay project (`filesystem.overlay`), compared with the host's files.

        Works after `close`, too. Raises NotFound when the sandbox keeps no changes.
        """
        return await self._threads.run(self.sync.changes)

    async def apply(self, paths: Sequence[str] | None = None, overwrite: bool = False) -> Applied:
        """Carries changes over to the host's files, as `Sandbox.apply`. Raises NotFound when none are kept."""
        return await self._threads.run(lambda: self.sync.apply(paths, overwrite))

    async def discard(self) -> None:
        """Ends the sandbox and throws the changes away. Raises NotFound when the sandbox keeps no changes."""
        await self._threads.run(self.sync.discard)
