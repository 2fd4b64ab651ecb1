"""Pause, checkpoint and fork: the part of `Sandbox` that stops time, saves it, and goes on from there in others."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from sandbox.errors import InvalidArgument, Message, SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType as Lock
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self

    from sandbox.audit.record import Record
    from sandbox.checkpoints.origin import CheckpointOrigin
    from sandbox.checkpoints.store import UnfinishedCheckpoint
    from sandbox.config.model import Config
    from sandbox.engines.base import Capabilities, Pausable, Running
    from sandbox.info import Checkpoint
    from sandbox.network.gate_thread import GateThread
    from sandbox.plan.plan import Plan
    from sandbox.sandbox import Sandbox
    from sandbox.vfs.mounts import Mounts
    from sandbox.vfs.provider import Provider

FORKS_MOST = 64  # in one call


class CheckpointMethods(ABC):
    """What `Sandbox` can do with its own state. Only `Sandbox` derives from it, and sets what is declared here."""

    id: str
    engine: str
    config: Config
    record: Record
    notices: list[str]
    _can: Capabilities
    _running: Running
    _plan: Plan
    _gate_thread: GateThread
    _mounts: Mounts | None
    _providers: dict[str, Provider]
    _hooks: object | None
    _command: Sequence[str] | None
    _resolve: Callable[[str, int], Sequence[str]] | None
    _origin: CheckpointOrigin | None = None  # what a restored sandbox starts from
    _forked_from: GateThread | None = None  # while a fork is built: the gate of the sandbox that it comes from
    _paused = False
    _forks: list[Any]  # made for other processes
    _saving: Lock  # held while it is paused, resumed or saved

    if TYPE_CHECKING:  # of `OwnerMethods`

        def _beside(self) -> list[Sandbox]: ...

    def pause(self) -> None:
        """Stops everything inside until `resume`. Nothing can be run or read meanwhile: that raises SandboxError.

        Idempotent. Raises SandboxError where the engine cannot do it, WallError, SandboxClosed.
        """
        self._alive()
        running = self._pausable()
        with self._saving:
            if not self._paused:
                running.pause()
                for one in self._beside():
                    one.pause()
                self._paused = True
                self.record.write("sandbox_lifecycle", "paused")

    def resume(self) -> None:
        """Lets everything inside go on. Idempotent. Raises WallError, SandboxClosed."""
        self._alive()
        with self._saving:
            if self._paused:
                self._pausable().resume()
                for one in self._beside():
                    one.resume()
                self._paused = False
                self.record.write("sandbox_lifecycle", "resumed")

    def checkpoint(self, name: str | None = None) -> Checkpoint:
        """Saves the sandbox under a name, for `Sandbox.restore`; it goes on running. See docs/checkpoints.md.

        With a virtual machine it saves memory, processes and files, else only the files; `saves` of the result says
        which. Raises SandboxError when it cannot be saved whole, and InvalidArgument for the name.
        """
        from sandbox.checkpoints.store import UnfinishedCheckpoint, described

        self._alive()
        wanted = name if name is not None else f"{self.id}-{os.urandom(3).hex()}"
        with UnfinishedCheckpoint(wanted) as made:
            about = self._save(made)
            made.finish(about)
            self.record.write("sandbox_lifecycle", "checkpoint", metadata={"name": wanted})
            return described(wanted, made.path, about)

    def fork(self, n: int = 1) -> list[Self]:
        """Returns `n` new sandboxes that go on from here, each with its own id, record, network and project layer.

        Open connections are reset in them. Commands that run here run there too, with nobody connected to them.
        With an engine that saves only files, nothing runs in them yet. Raises what `checkpoint` and `Sandbox` raise.
        """
        from sandbox.checkpoints.store import UnfinishedCheckpoint

        self._alive()
        if type(n) is not int or not 0 < n <= FORKS_MOST:
            raise InvalidArgument("n must be a number from 1 to {most}", most=FORKS_MOST)
        with UnfinishedCheckpoint(None) as made:
            about = self._save(made)
            return _several(
                lambda: self._start_from(made.path, about, self.config, self._hooks, self._resolve, self._gate_thread),
                n,
            )

    @classmethod
    def restore(
        cls,
        name: str,
        config: Mapping[str, Any] | None = None,
        *,
        hooks: object | None = None,
    ) -> Self:
        """Starts a sandbox that goes on from a checkpoint.

        A checkpoint holds no secrets and no values of `environment.set`: give those that have no source of their own
        again in `config`. Raises NotFound; SandboxError when the checkpoint is damaged, accessible to other users, or
        made with another QEMU, kernel or system than the present one; ConfigError for a missing value; and what
        `Sandbox` raises.
        """
        return cls._restore(name, config or {}, hooks)

    @classmethod
    def _restore(
        cls,
        name: str,
        config: Mapping[str, Any],
        hooks: object | None,
        owner: Callable[[str], Config] | None = None,
    ) -> Self:
        """As `restore`. `owner` is called with the project when values are missing, for a configuration with them."""
        from sandbox.checkpoints.origin import restored_config
        from sandbox.checkpoints.store import load

        path, about = load(name)
        return cls._start_from(path, about, restored_config(about["config"], config, owner), hooks, None)

    def _keep_forks(self, n: int) -> list[str]:
        """Makes forks for another process, which reaches them by their ids. They end with this sandbox."""
        forks = self.fork(n)
        self._forks += forks
        return [one.id for one in forks]

    def _end_forks(self) -> None:
        while self._forks:
            self._forks.pop().close()

    @classmethod
    def _start_from(
        cls,
        path: str,
        about: Mapping[str, Any],
        config: Config,
        hooks: object | None,
        resolve: Callable[[str, int], Sequence[str]] | None,
        forked_from: GateThread | None = None,
    ) -> Self:
        from sandbox.checkpoints.origin import CheckpointOrigin, for_fork

        origin = CheckpointOrigin(path, about)
        forked = for_fork(config)
        forked.engine = about["engine"]
        origin.check_project(forked)
        made = cls.__new__(cls)
        made._origin, made._forked_from = origin, forked_from
        made.__init__(forked, hooks=hooks, command=about.get("command"), resolve=resolve)  # type: ignore[misc]
        made._forked_from = None
        made._tell_origin(about)
        return made

    def _tell_origin(self, about: Mapping[str, Any]) -> None:
        notices = [Message("this sandbox continues from {id}", id=about["sandbox"])]
        if about["saves"] == "files":
            notices = [
                Message(
                    "this sandbox has the files of {id}; the engine {engine} saves neither processes nor memory",
                    id=about["sandbox"],
                    engine=self.engine,
                )
            ]
        if self.config.filesystem.overlay and not about["overlay"]:
            notices.append(
                Message("the project is under an overlay of its own here: see `sandbox diff {id}`", id=self.id)
            )
        if about["lost"]:
            count = len(about["lost"])
            notices.append(Message("{count} open files without a name could not be saved", count=count))
        self.notices += notices
        for notice in notices:
            self.record.write("sandbox_lifecycle", notice)

    # -- saving

    def _save(self, made: UnfinishedCheckpoint) -> dict[str, Any]:
        """Writes everything into the new checkpoint's directory; returns what its manifest says."""
        from sandbox.checkpoints.origin import MACHINE, save_files, workspace_of
        from sandbox.config.home import home
        from sandbox.registry.registry import find

        running = self._pausable()
        self._refuse_shared()
        # Places under something of the host's, such as a package cache, are left out: the fork has that too.
        covered = {target for _, target in self._plan.cached} | {bind.target for bind in self._plan.binds}
        places = [path for path, _ in self._plan.scratch if path not in covered]
        layer = workspace_of(self.id) if self.config.filesystem.overlay else None
        lost: list[str] = []
        assert self._running.pid is not None
        with self._saving:
            if not self._paused:
                running.pause()
            try:
                if self._can.checkpoint == "machine":
                    os.mkdir(os.path.join(made.path, MACHINE), 0o700)
                    lost = running.save(os.path.join(made.path, MACHINE))
                save_files(made.path, self._running.pid, places, layer)
            finally:
                if not self._paused:
                    running.resume()
        status = os.stat(self._plan.directory)
        return {
            "sandbox": self.id,
            "family": find(home(), self.id).family,
            "engine": self.engine,
            "saves": self._can.checkpoint,
            "config": self.config.plain(),
            "command": [os.fsdecode(word) for word in self._command] if self._command else None,
            "overlay": self.config.filesystem.overlay,
            "places": places,
            "project": [status.st_dev, status.st_ino],
            "lost": lost,
            **({"workspace": layer} if layer is not None else {}),
        }

    def _pausable(self) -> Pausable:
        from sandbox.engines.base import Pausable

        if not self._can.checkpoint or not isinstance(self._running, Pausable):
            raise SandboxError("the engine {engine} can neither pause a sandbox nor save it", engine=self.engine)
        return self._running

    def _refuse_shared(self) -> None:
        """Raises SandboxError for anything that a fork cannot have its own copy of."""
        filesystem, vfs = self.config.filesystem, self.config.vfs
        lent = [
            ("filesystem.allow_write", bool(filesystem.allow_write)),
            ("filesystem.show_host", filesystem.show_host),
            ("filesystem.branch", filesystem.branch is not None),
            ("vfs.mounts", bool(self._providers) or "FUSE" in (self._mounts.ways if self._mounts else {}).values()),
            ("vfs", any(not one.readonly and one.type == "real_fs" for one in vfs.mounts.values())),
            ("vfs.direct_mounts", bool(vfs.direct_mounts)),
        ]
        for key, asked in lent:
            if asked:
                raise SandboxError("a sandbox with {key} cannot be saved or forked: forks would share it", key=key)

    def _not_paused(self) -> None:
        if self._paused:
            raise SandboxError("the sandbox {id} is paused; `sandbox resume {id}` continues it", id=self.id)

    @abstractmethod
    def _alive(self) -> None:
        """Raises SandboxClosed when it has ended."""

    @abstractmethod
    def close(self) -> None:
        """Ends the sandbox."""


def _several(start: Callable[[], Any], n: int) -> list[Any]:
    """`n` results of `start`, made as many at a time as there are processors; all of them or none."""
    if n == 1:
        return [start()]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(n, os.cpu_count() or 1)) as pool:
        starting = [pool.submit(start) for _ in range(n)]
    failed = next((one.exception() for one in starting if one.exception() is not None), None)
    if failed is not None:
        for one in starting:
            if one.exception() is None:
                one.result().close()
        raise failed
    return [one.result() for one in starting]
