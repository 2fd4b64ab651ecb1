"""LangChain's deepagents: a backend whose files and commands are a sandbox's. See docs/integrations/deepagents.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from sandbox.aio import AsyncSandbox
from sandbox.errors import CommandError
from sandbox.result import ExecResult
from sandbox.sandbox import Sandbox

TIMEOUT = 120  # seconds that a command has, unless the caller says otherwise
OUTPUT_MOST = 2**20
TIMED_OUT = 124  # the status that coreutils' timeout uses
ERRORS = {
    FileNotFoundError: "file_not_found",
    PermissionError: "permission_denied",
    IsADirectoryError: "is_directory",
    NotADirectoryError: "invalid_path",
}


class SandboxBackend(BaseSandbox):  # type: ignore[misc]
    """`create_deep_agent(backend=SandboxBackend())`. Close it, or use it in a `with` statement."""

    def __init__(
        self,
        sandbox: Sandbox | Mapping[str, Any] | None = None,
        *,
        timeout: float | None = TIMEOUT,
        max_output: int = OUTPUT_MOST,
    ) -> None:
        """Takes a sandbox, which stays the caller's to close, or the configuration of one of its own.

        Raises what `Sandbox()` raises.
        """
        self._owns = not isinstance(sandbox, Sandbox)
        self.sandbox = sandbox if isinstance(sandbox, Sandbox) else Sandbox(sandbox)
        self._async = AsyncSandbox._around(self.sandbox)
        self._timeout, self._most = timeout, max_output

    @property
    def id(self) -> str:
        """The sandbox's name in the registry."""
        return self.sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command; both outputs come as one. `timeout=0` means no timeout. Raises SandboxClosed."""
        try:
            return _response(self.sandbox.exec(_whole(command), timeout=self._limit(timeout), max_output=self._most))
        except CommandError as problem:
            return ExecuteResponse(str(problem), problem.exit_code)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """The same; cancelling it kills the command."""
        try:
            given = self._limit(timeout)
            return _response(await self._async.exec(_whole(command), timeout=given, max_output=self._most))
        except CommandError as problem:
            return ExecuteResponse(str(problem), problem.exit_code)

    def _limit(self, timeout: float | None) -> float | None:
        return self._timeout if timeout is None else timeout or None

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Makes files and the directories above them; each answer says how that one went. Raises SandboxClosed."""
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def _upload(self, path: str, content: bytes) -> str | None:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            self.sandbox.mkdir(path.rpartition("/")[0] or "/")
            self.sandbox.write_file(path, content)
        except (OSError, ValueError) as problem:
            return _reason(problem)
        return None

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """The contents of files; each answer says how that one went. Raises SandboxClosed."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=self.sandbox.read_file(path))
        except (OSError, ValueError) as problem:
            return FileDownloadResponse(path=path, error=_reason(problem))

    def close(self) -> None:
        """Ends the sandbox, unless it was given. Idempotent."""
        if self._owns:
            self.sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _whole(command: str) -> str:
    """Merges both outputs: two pipes would lose the order in which they were written."""
    return f"exec 2>&1\n{command}"


def _response(done: ExecResult) -> ExecuteResponse:
    output = f"{done.stdout}\n{done.note}".strip() if done.note else done.stdout
    return ExecuteResponse(output, TIMED_OUT if done.timed_out else done.exit_code, done.truncated)


def _reason(problem: Exception) -> str:
    return next((name for kind, name in ERRORS.items() if isinstance(problem, kind)), str(problem))
