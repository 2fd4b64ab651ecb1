"""The directories of a sandbox that are more than host files. They are arranged before the walls are built, and then
served."""

from __future__ import annotations

from sandbox.errors import ConfigError
from sandbox.vfs.arrange import arrange, overlay_project

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox.config.model import Config
    from sandbox.plan.plan import Plan
    from sandbox.vfs.fuse.session import FuseSession
    from sandbox.vfs.provider import Guard, Provider


class Mounts:
    """Arranges them when created. Call `furnish` with the plan, `serve` when the guest is ready, `close` at the end."""

    def __init__(
        self,
        config: Config,
        own: Mapping[str, Provider],
        *,
        hooks: object | None = None,
        emit: Callable[[str, str, int], None] | None = None,
        report: Callable[[str], None] | None = None,
        guard: Callable[[str], Guard] | None = None,
    ) -> None:
        """`guard(directory)` gives the rules for a host's directory. Raises ConfigError, WallError."""
        self._arrangement = arrange(config.vfs, own, hooks=hooks, emit=emit, guard=guard)
        self._report = report
        self._sessions: list[FuseSession] = []

    @property
    def ways(self) -> dict[str, str]:
        """How each directory is provided, by its path inside."""
        return self._arrangement.ways

    @property
    def shown(self) -> list[tuple[str, str, bool]]:
        """The host's directories that the kernel shows: source, inside path, and whether tenants can change them."""
        return self._arrangement.shown

    @property
    def hiding(self) -> list[str]:
        """The paths inside at which something other than host files is mounted."""
        return [path for path, _ in self._arrangement.scratch]

    def furnish(self, plan: Plan, state: str | None = None, repository: tuple[str, str] | None = None) -> None:
        """Adds to the plan what these directories need. Raises ConfigError if the plan has no walls.

        `state` is the directory that keeps an overlay project's changes. `repository` is the directory of a repository
        outside the project, and the directory that keeps the changes to it.
        """
        result = self._arrangement
        if not plan.walls:
            key = "filesystem.overlay" if state is not None else "vfs"
            raise ConfigError("needs isolation, which mode off does not have", path=key)
        if state is not None:
            overlay_project(result, plan.directory, state)
            plan.freeze(plan.directory)  # changes go to the layer above it
        if repository is not None:
            overlay_project(result, *repository, name="repository")
            result.writable.append(repository[0])
        for source, target, writable in result.binds:
            plan.show(source, target, writable)
        if result.device is not None:
            plan.show(*result.device, True, device=True)
        plan.scratch += result.scratch
        plan.writable += result.writable
        plan.layers += result.layers
        plan.served += result.fuse

    def serve(self, devices: dict[str, int]) -> None:
        """Takes over the guest's mounted devices and answers on them from now on."""
        if not self._arrangement.served:
            return
        from sandbox.vfs.fuse.session import FuseSession

        for name, provider in self._arrangement.served.items():
            self._sessions.append(FuseSession(devices.pop(name), provider, report=self._report))

    def close(self) -> None:
        """Ends the sessions. Call it when the sandbox, and so its mounts, are gone."""
        for session in self._sessions:
            session.close()
        if not self._sessions:
            for provider in self._arrangement.served.values():
                provider.close()
