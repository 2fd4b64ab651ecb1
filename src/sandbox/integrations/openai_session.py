"""OpenAI Agents SDK: a session of its sandbox interface, whose files and commands are a sandbox's.

`openai_client.py` makes them. What a sandbox may do is in the client, never in the state that the SDK stores, so that
stored state cannot widen it.
"""

from __future__ import annotations

import errno
import io
import os
import shlex
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes

from sandbox.aio import AsyncSandbox
from sandbox.errors import CommandError, SandboxClosed, SandboxError
from sandbox.integrations.openai_terminals import Terminals
from sandbox.result import OUTPUT_LIMIT
from sandbox.result import ExecResult as Done

ARCHIVE_MOST = 2**29  # bytes of a snapshot


class AgentSandboxSessionState(SandboxSessionState):  # type: ignore[misc]
    """What the SDK stores of a session."""

    type: Literal["agent-sandbox"] = "agent-sandbox"


class AgentSandboxSession(Terminals, BaseSandboxSession):  # type: ignore[misc]
    """One sandbox, from `start` to `shutdown`."""

    def __init__(self, state: AgentSandboxSessionState, config: Mapping[str, Any]) -> None:
        """Takes the configuration that the client has made. Starts nothing yet."""
        super().__init__()
        self.state = state
        self._config = config
        self.sandbox: AsyncSandbox | None = None

    # -- its life

    async def _ensure_backend_started(self) -> None:
        if self.sandbox is not None:
            return
        own = own_directory(self.state)
        if self._config["filesystem"]["root"] == own:
            self._set_start_state_preserved(_made(own), system=False)
        try:
            self.sandbox = await AsyncSandbox(self._config, command=["openai-agents"]).start()
        except SandboxError as problem:
            raise WorkspaceStartError(path=self._workspace_root_path(), cause=problem) from problem

    async def _prepare_backend_workspace(self) -> None:
        try:
            await self._running_sandbox.mkdir(self.state.manifest.root)
        except OSError as problem:
            raise WorkspaceStartError(path=self._workspace_root_path(), cause=problem) from problem

    async def _after_start_failed(self) -> None:
        await self._shutdown_backend()

    async def _shutdown_backend(self) -> None:
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            await sandbox.close()

    async def running(self) -> bool:
        """Whether there is a sandbox."""
        return self.sandbox is not None and not self.sandbox.sync._closed

    @property
    def _running_sandbox(self) -> AsyncSandbox:
        if self.sandbox is None:
            raise SandboxClosed("the sandbox is closed")
        return self.sandbox

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object | None:
        return None if self.sandbox is None else self.sandbox.id

    async def provision_manifest_accounts(self) -> None:
        """Raises ValueError for users and groups: a sandbox has one user, and no way to another."""
        if self.state.manifest.users or self.state.manifest.groups:
            raise ValueError("a sandbox has one user: its manifest cannot have users or groups")

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        published = [] if self.sandbox is None else self.sandbox.ports
        for one in published:
            if one.inside == port:
                return ExposedPortEndpoint(host=one.address, port=one.port)
        raise ExposedPortUnavailableError(
            port=port, exposed_ports=self.state.exposed_ports, reason="backend_unavailable"
        )

    # -- commands

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        if user is not None:
            raise ValueError("a sandbox has one user: commands cannot run as another")
        prepared: list[str] = super()._prepare_exec_command(*command, shell=shell, user=None)
        return prepared

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        words = [str(word) for word in command]
        try:
            done = await self._done(words, timeout=timeout)
        except CommandError as problem:
            return ExecResult(stdout=b"", stderr=f"{problem}\n".encode(), exit_code=problem.exit_code)
        except SandboxError as problem:
            raise ExecTransportError(command=words, cause=problem) from problem
        if done.timed_out:
            raise ExecTimeoutError(command=words, timeout_s=timeout)
        return ExecResult(stdout=done.stdout_bytes, stderr=done.stderr_bytes, exit_code=done.exit_code)

    async def _done(
        self, words: list[str], *, timeout: float | None = None, input: bytes | None = None, most: int = OUTPUT_LIMIT
    ) -> Done:
        env = await self.state.manifest.environment.resolve()
        root = self.state.manifest.root
        return await self._running_sandbox.exec(words, root, env=env, input=input, timeout=timeout, max_output=most)

    # -- files

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        checked: Path = await self._validate_remote_path_access(path, for_write=for_write)
        return checked

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """A file's content. Raises WorkspaceReadNotFoundError, WorkspaceArchiveReadError."""
        self._refuse(user)
        checked = await self._validate_path_access(path)
        try:
            return io.BytesIO(await self._running_sandbox.read_file(checked))
        except (FileNotFoundError, NotADirectoryError) as problem:
            raise WorkspaceReadNotFoundError(path=path, cause=problem) from problem
        except (OSError, SandboxError) as problem:
            raise WorkspaceArchiveReadError(path=path, cause=problem) from problem

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        checked = await self._validate_path_access(path)
        done = await self._done(["head", "-c", str(max_bytes), "--", str(checked)], most=max_bytes)
        if not done.ok:
            raise WorkspaceReadNotFoundError(path=path)
        return done.stdout_bytes

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Makes a file and the directories above it. Raises WorkspaceArchiveWriteError, WorkspaceWriteTypeError."""
        self._refuse(user)
        content = data.read()
        if not isinstance(content, (str, bytes, bytearray)):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
        checked = await self._validate_path_access(path, for_write=True)
        given = content if isinstance(content, str) else bytes(content)
        try:
            await self._running_sandbox.mkdir(checked.parent)
            await self._running_sandbox.write_file(checked, given)
        except (OSError, SandboxError) as problem:
            raise WorkspaceArchiveWriteError(path=checked, cause=problem) from problem

    def _refuse(self, user: str | User | None) -> None:
        self._prepare_exec_command("true", shell=False, user=user)

    # -- snapshots

    async def persist_workspace(self) -> io.IOBase:
        """The workspace as a tar archive. Raises WorkspaceArchiveReadError."""
        root = self._workspace_root_path()
        leave_out = [shlex.split(one)[0] for one in shell_tar_exclude_args(self._persist_workspace_skip_relpaths())]
        done = await self._done(["tar", *leave_out, "-C", str(root), "-cf", "-", "."], most=ARCHIVE_MOST)
        if not done.ok or done.truncated:
            why = f"it has more than {ARCHIVE_MOST} bytes" if done.truncated else done.stderr[-2000:]
            raise WorkspaceArchiveReadError(path=root, context={"reason": why})
        return io.BytesIO(done.stdout_bytes)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpacks such an archive, inside. Raises WorkspaceArchiveWriteError."""
        root = self._workspace_root_path()
        archive = data.read()
        try:
            validate_tar_bytes(archive, allow_external_symlink_targets=False)
        except UnsafeTarMemberError as problem:
            raise WorkspaceArchiveWriteError(path=root, context={"member": problem.member}, cause=problem) from problem
        done = await self._done(["tar", "-C", str(root), "-xf", "-"], input=archive)
        if not done.ok:
            raise WorkspaceArchiveWriteError(path=root, context={"reason": done.stderr[-2000:]})


def own_directory(state: SandboxSessionState) -> str:
    """The directory of a session that was given none. Its name is made from the session's id."""
    return os.path.join(os.path.realpath(tempfile.gettempdir()), f"sandbox-openai-{state.session_id.hex}")


def _made(directory: str) -> bool:
    """Makes a directory. Returns True if it was there already. Raises OSError if it is not the user's own."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        found = os.lstat(directory)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it is not a directory of yours", directory) from None
        return True
    return False
