"""harbor (Terminal-Bench): every trial in a sandbox on the task's image. See docs/integrations/harbor.md.

harbor finds it by `--environment-import-path sandbox.integrations.harbor_environment:SandboxEnvironment`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.config import ResourceMode

from sandbox.aio import AsyncSandbox
from sandbox.config import files
from sandbox.errors import CommandError, SandboxClosed
from sandbox.integrations.harbor_images import bring

ROOT = ("root", "0")


class SandboxEnvironment(BaseEnvironment):  # type: ignore[misc]
    """A sandbox whose `/` is the task's image, with root inside; what a trial writes is gone when it ends."""

    def __init__(self, *args: Any, config: Mapping[str, Any] | str | None = None, **kwargs: Any) -> None:
        """`config` is a sandbox's configuration, or a file with one: `--ek config=sandbox.yaml`. Raises ConfigError."""
        self._config = _read(config)
        self.sandbox: AsyncSandbox | None = None
        self._project: tempfile.TemporaryDirectory[str] | None = None
        self._workdir = "/"
        super().__init__(*args, **kwargs)

    # -- what it can do

    @staticmethod
    def type() -> str:
        """Its name in results."""
        return "agent-sandbox"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Every network policy, also when it changes between phases; no GPUs, compose files or mounts."""
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv6_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            network_allowlist_ipv6_cidrs=True,
            dynamic_network_policy=True,
        )

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Processors and memory are limits."""
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    def _validate_definition(self) -> None:
        if any((self.environment_dir / name).exists() for name in ("docker-compose.yaml", "docker-compose.yml")):
            raise ValueError("this task has a compose file: a sandbox has one image, and no other services")
        if not self.task_env_config.docker_image and not (self.environment_dir / "Dockerfile").is_file():
            raise FileNotFoundError(f"{self.environment_dir} has no Dockerfile, and the task names no docker_image")
        # harbor's own mounts are for logs, which it downloads. Any other would be silently missing.
        trial = self.trial_paths.trial_dir.resolve()
        if not all(Path(one["source"]).resolve().is_relative_to(trial) for one in self._mounts):
            raise ValueError("a sandbox shows directories of the host at their own place only: use no mounts")

    # -- its life

    async def start(self, force_build: bool) -> None:
        """Gets the image, building it if necessary, and starts a sandbox on it. Raises SandboxError."""
        named = self.task_env_config.docker_image
        image, there = await asyncio.to_thread(
            bring, named, self.environment_dir, f"harbor-{self.environment_id[:24]}", force_build
        )
        self._workdir = self.task_env_config.workdir or there or "/"
        self._project = tempfile.TemporaryDirectory(prefix="sandbox-trial-", ignore_cleanup_errors=True)
        try:
            asked = self._settings(image, self._project.name)
            self.sandbox = await AsyncSandbox(asked, command=["harbor", self.session_id]).start()
            await self.sandbox.mkdir(self._workdir)
            await self.ensure_dirs(self._mount_targets(writable_only=True))
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self.stop(delete=True)
            raise

    def _settings(self, image: str, project: str) -> dict[str, Any]:
        given = {**self._config, "image": image}
        given.setdefault("user", "root")
        place = {"root": project, **(given.get("filesystem") or {})}
        if self._effective_storage_mb is not None:
            place.setdefault("scratch_size", f"{self._effective_storage_mb}m")
        limits = dict(given.get("limits") or {})
        cpus = self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        memory = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        limits.update({"cpus": cpus} if cpus is not None else {})
        limits.update({"memory": f"{memory}m"} if memory is not None else {})
        network = {**(given.get("network") or {}), **_network(self._network_policy)}
        return {**given, "filesystem": place, "limits": limits, "network": network}

    async def stop(self, delete: bool) -> None:
        """Ends the sandbox, with all that runs in it. Its files are in memory: there is nothing to keep."""
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            await sandbox.close()
        project, self._project = self._project, None
        if project is not None:
            project.cleanup()

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        await self._running.update_network(_network(network_policy))

    @property
    def _running(self) -> AsyncSandbox:
        if self.sandbox is None:
            raise SandboxClosed("the sandbox is closed")
        return self.sandbox

    # -- what trials do

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command with bash. Raises RuntimeError when it takes too long, and ValueError for another user."""
        asked = self._resolve_user(user)
        if asked is not None and str(asked) not in ROOT:
            raise ValueError(f"a sandbox has one user, root: commands cannot run as {asked!r}")
        tell = self._output_callback()
        heard: dict[str, Any] = {}
        if tell is not None:
            heard = {
                "on_stdout": lambda data: tell(data.decode(errors="replace"), "stdout"),
                "on_stderr": lambda data: tell(data.decode(errors="replace"), "stderr"),
            }
        words, there = ["/bin/bash", "-c", command], cwd or self._workdir
        try:
            done = await self._running.exec(words, there, env=self._merge_env(env), timeout=timeout_sec, **heard)
        except CommandError as problem:
            return ExecResult(stdout="", stderr=f"{problem}\n", return_code=problem.exit_code)
        if done.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copies a file in, making the directories above it. Raises OSError."""
        await self._running.mkdir(os.path.dirname(target_path) or "/")
        await self._running.upload(source_path, target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Adds a directory's content to one inside. Raises OSError."""
        await self._running.mkdir(target_dir)
        await self._running.upload(source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copies a file out. Raises OSError."""
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        await self._running.download(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copies a directory's content out; nothing is written through a link. Raises OSError."""
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        await self._running.download(source_dir, target_dir)

    async def attach(self) -> None:
        """Becomes a shell in the sandbox."""
        os.execvp("sandbox", ["sandbox", "attach", self._running.id])


def _network(policy: NetworkPolicy) -> dict[str, Any]:
    """harbor's network policy, as our `network` section."""
    hosts = list(policy.allowed_hosts) if policy.network_mode == NetworkMode.ALLOWLIST else []
    return {"preset": "open" if policy.network_mode == NetworkMode.PUBLIC else "closed", "allowed_hosts": hosts}


def _read(config: Mapping[str, Any] | str | None) -> dict[str, Any]:
    if isinstance(config, str):
        source = files.read(config)
        if source is None:
            raise FileNotFoundError(config)
        return source.data
    return dict(config or {})
