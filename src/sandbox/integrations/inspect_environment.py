"""inspect_ai: `sandbox="sandbox"` gives every sample a sandbox of its own. See docs/integrations/inspect.md.

inspect_ai finds this module by its entry point; nothing else imports it.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    concurrency,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from sandbox.aio import AsyncSandbox
from sandbox.config import files
from sandbox.errors import CommandError, SandboxClosed

CONFIG_FILES = ["sandbox.yaml"]
NOT_EXECUTABLE = 126


class SandboxConfig(BaseModel, frozen=True):
    """A configuration in code: `SandboxEnvironmentSpec("sandbox", SandboxConfig(network={"preset": "registries"}))`."""

    model_config = ConfigDict(extra="allow")
    if TYPE_CHECKING:

        def __init__(self, **settings: Any) -> None: ...


@sandboxenv(name="sandbox")
class AgentSandboxEnvironment(SandboxEnvironment):  # type: ignore[misc]
    """One sandbox around an empty directory, or around an overlay of `filesystem.root`."""

    def __init__(self, sandbox: AsyncSandbox, directory: tempfile.TemporaryDirectory[str] | None) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._directory = directory

    # -- its life

    _joined: ClassVar[dict[str, Any]] = {}  # the clusters of the tasks that run, by address

    @classmethod
    async def task_init(cls, task_name: str, config: Any) -> None:
        """Checks that the configuration can be read, before any sample starts. Raises ConfigError."""
        settings(config)

    @classmethod
    async def task_cleanup(cls, task_name: str, config: Any, cleanup: bool) -> None:
        """Leaves the cluster, if the samples ran on one."""
        joined = cls._joined.pop(str(settings(config).get("cluster")), None)
        if joined is not None:
            await joined.close()

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        """Makes a sample's sandbox."""
        given = settings(config)
        if given.get("cluster"):
            return {"default": cls(await cls._on_cluster(given), None)}
        place = dict(given.get("filesystem") or {})
        directory = None
        if "root" in place:
            place.setdefault("overlay", True)  # samples run side by side, and must not see each other's files
        else:
            directory = tempfile.TemporaryDirectory(prefix="sandbox-sample-", ignore_cleanup_errors=True)
            place["root"] = directory.name
        try:
            started = await AsyncSandbox({**given, "filesystem": place}, command=["inspect", task_name]).start()
        except BaseException:
            if directory is not None:
                directory.cleanup()
            raise
        return {"default": cls(started, directory)}

    @classmethod
    async def _on_cluster(cls, given: dict[str, Any]) -> AsyncSandbox:
        """A sandbox on a node of the cluster, around a copy of `filesystem.root` if that is given."""
        from sandbox.cluster import AsyncCluster

        address = given["cluster"]
        if address not in cls._joined:
            cls._joined[address] = AsyncCluster(address)
        joined = await cls._joined[address].start()
        place = dict(given.get("filesystem") or {})
        root = place.pop("root", None)
        asked = {**{key: value for key, value in given.items() if key != "cluster"}, "filesystem": place}
        made: AsyncSandbox = await joined.sandbox(asked, project=root)
        return made

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """Ends a sample's sandboxes."""
        for one in environments.values():
            ours = one.as_type(cls)
            await ours.sandbox.close()
            if ours._directory is not None:
                ours._directory.cleanup()

    @classmethod
    def config_files(cls) -> list[str]:
        """The configuration files that inspect looks for beside the task."""
        return CONFIG_FILES

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """A configuration that was read from a log."""
        return SandboxConfig(**config)

    @classmethod
    def default_concurrency(cls) -> int | None:
        """How many samples have a sandbox at once."""
        return 2 * (os.cpu_count() or 1)

    def default_polling_interval(self) -> float:
        """Short, because reading our files is cheap."""
        return 0.2

    # -- what tools call

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command.

        Raises TimeoutError, PermissionError, OutputLimitExceededError, SandboxUnavailableError, and
        SandboxUserUnsupportedError for another user.
        """
        await self._must_be(user)
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        async with _slot() if concurrency else nullcontext():
            try:
                done = await self.sandbox.exec(cmd, cwd, env=env, input=input, timeout=timeout, max_output=most)
            except SandboxClosed as problem:
                raise SandboxUnavailableError(str(problem)) from problem
            except CommandError as problem:
                if problem.exit_code == NOT_EXECUTABLE:
                    raise PermissionError(errno.EACCES, str(problem), cmd[0]) from problem
                return ExecResult(False, problem.exit_code, "", f"{problem}\n")
        if done.timed_out:
            raise TimeoutError(f"{cmd[0]} ran longer than {timeout} seconds")
        if done.truncated:
            kept = done.stdout if len(done.stdout_bytes) > most else done.stderr
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, kept)
        return ExecResult(done.ok, done.exit_code, done.stdout, done.stderr)

    async def _must_be(self, user: str | None) -> None:
        """Raises SandboxUserUnsupportedError for another user: nobody inside can become one."""
        if user is None:
            return
        own = await self.sandbox.exec(["/bin/sh", "-c", "id -u; id -un"])
        if user not in own.stdout.split():
            raise SandboxUserUnsupportedError(f"commands in this sandbox cannot run as {user!r}: it has one user")

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Makes a file and the directories above it, or replaces its content. Raises OSError."""
        above = os.path.dirname(file)
        if above:
            await self.sandbox.mkdir(above)
        await self.sandbox.write_file(file, contents)

    async def read_file(self, file: str, text: bool = True) -> Any:
        """A file's content. Raises OSError, UnicodeDecodeError, OutputLimitExceededError."""
        try:
            content = await self.sandbox.read_file(file, SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        except OSError as problem:
            if problem.errno != errno.EFBIG:
                raise
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from problem
        return content.decode() if text else content

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """How a person gets in. Raises ConnectionError when it has ended."""
        await self._must_be(user)
        if self.sandbox.sync._closed:
            raise ConnectionError("the sandbox has ended")
        return SandboxConnection(type="sandbox", command=f"sandbox attach {self.sandbox.id}")


def settings(config: object) -> dict[str, Any]:
    """A task's settings, from a file's name, our model, or nothing. Raises ConfigError, FileNotFoundError."""
    if config is None:
        return {}
    if isinstance(config, BaseModel):
        return config.model_dump(exclude_none=True)
    source = files.read(str(config))
    if source is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(config))
    return source.data


def _slot() -> Any:
    """A place among the commands that inspect runs at once on this machine (`--max-subprocesses`)."""
    from inspect_ai.util._subprocess import max_subprocesses_context_var

    return concurrency("subprocesses", max_subprocesses_context_var.get())
