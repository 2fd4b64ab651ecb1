"""The engines `docker` and `podman`: the guest is the container's entry point, and the rest is as with bubblewrap.

The engine makes the namespaces and the control group. The guest connects to our socket, builds what the plan
shows from the host's files, passes its network to the gate, drops every privilege and runs commands. Commands do not go
through the engine, so they cost what they cost in any other sandbox.
"""

from __future__ import annotations

import os
import resource
import select
import tempfile
import time
from functools import cached_property
from struct import unpack

from sandbox import sockets as socket
from sandbox.engines.base import Capabilities, Engine, Finding, GuestRunning, Started
from sandbox.engines.container.arguments import STAGE, run_arguments
from sandbox.engines.container.cli import Cli, CommandFailed, said
from sandbox.engines.container.forgotten import end_forgotten
from sandbox.engines.container.guest_directory import GuestDirectory
from sandbox.engines.container.images import empty_image
from sandbox.engines.container.info import Info, ask
from sandbox.engines.container.leftovers import labels
from sandbox.engines.container.limits import group_of, refuse_unheld, verify
from sandbox.engines.rlimits import rlimits
from sandbox.errors import EngineUnavailable, Message, SandboxClosed, WallError, message_of
from sandbox.guest.guest import Guest

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import subprocess
    from typing import BinaryIO

    from sandbox.config.model import Config
    from sandbox.engines.cgroup_limits import Group
    from sandbox.engines.usage import Usage
    from sandbox.plan.plan import Plan

PATIENCE = 60.0  # seconds until a started container's guest reports
_PROCESSES = 2**15  # Podman limits itself to this, so its containers can have no more
_END = 5.0  # seconds for a guest to end by itself


class ContainerRunning(GuestRunning):
    """A container whose guest is set up."""

    def __init__(self, cli: Cli, name: str, guest: Guest, pid: int, group: Group | None, enterable: bool) -> None:
        super().__init__(guest)
        self.have = guest.have
        self.pid = pid if enterable else None
        self._cli = cli
        self._name = name
        self._guest_pid = pid
        self._group = group
        self._closed = False

    def out_of_memory(self) -> str | None:
        return self._group.out_of_memory() if self._group is not None else None

    def usage(self) -> Usage:
        from sandbox.engines.usage import usage

        return usage(self._guest_pid, self._group)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        remove(self._cli, self._name, self._guest, self._guest_pid)


class ContainerStart(Started):
    """An engine that answered."""

    def __init__(self, cli: Cli, info: Info, runtime: str | None) -> None:
        self._cli = cli
        self._info = info
        self._runtime = runtime

    def build(self, plan: Plan) -> ContainerRunning:
        refuse_unheld(plan, self._info, self._cli.name)
        image = empty_image(self._cli)
        shelf = GuestDirectory(plan.id)
        try:
            with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as printed:
                process = self._cli.start(self._words(plan, shelf, image), errors, stdout=printed.fileno())
                guest, pid = None, -1
                try:
                    guest = Guest(_wait(shelf.listener, process, errors, self._cli.name))
                    pid = _peer(guest.report_socket())
                    group = self._set_up(plan, guest, pid)
                    _ended(process, errors, self._cli.name)
                except BaseException:
                    _end(process)
                    remove(self._cli, plan.container_name, guest, pid)
                    if process.returncode != 0:
                        end_forgotten(printed)
                    raise
        finally:
            shelf.remove()
        return ContainerRunning(self._cli, plan.container_name, guest, pid, group, self._info.owner_is_root)

    def abandon(self) -> None:
        pass  # nothing has been started

    def _words(self, plan: Plan, shelf: GuestDirectory, image: str) -> list[str]:
        return run_arguments(
            plan,
            self._info,
            shelf=shelf.path,
            image=image,
            labels=labels(plan.id),
            ulimits=_ulimits(),
            runtime=self._runtime,
        )

    def _set_up(self, plan: Plan, guest: Guest, pid: int) -> Group | None:
        by_group = "pids" in self._info.controllers
        owner = os.pidfd_open(os.getpid())
        try:
            guest.greet()
            group = group_of(pid)
            verify(plan, group, by_group, self._cli.name)
            setup = {
                **plan.setup(STAGE),
                "rlimits": rlimits(plan.limits, plan.pids, group if by_group else None),
                "container": {
                    "uid": 0 if self._info.owner_is_root else os.geteuid(),
                    "gid": 0 if self._info.owner_is_root else os.getegid(),
                    "seen": _seen(plan),
                },
            }
            guest.set_up(setup, [owner])
            return group
        except SandboxClosed:
            if self._runtime is not None:
                raise WallError(
                    "the guest ended while it was set up by the runtime {runtime!r}: one with a kernel of its own, as"
                    " gVisor has, lacks what the walls are made of; leave `runtime` out",
                    runtime=self._runtime,
                ) from None
            raise WallError(
                "the guest ended while it was set up: {said}", said=Message("no message; see `sandbox doctor`")
            ) from None
        finally:
            os.close(owner)


class ContainerEngine(Engine):
    """Docker, or Podman."""

    def __init__(self, name: str, runtime: str | None = None) -> None:
        self.name = name
        self._runtime = runtime

    @cached_property
    def cli(self) -> Cli:
        """The engine's command. Raises EngineUnavailable."""
        return Cli(self.name)

    @cached_property
    def info(self) -> Info:
        """What the engine says about itself. Raises EngineUnavailable when it does not answer."""
        return ask(self.cli)

    @property
    def can(self) -> Capabilities:  # type: ignore[override]
        """Depends on the engine that answers. If none does, everything possible: `start` raises the error."""
        try:
            # Only root can enter the mount namespace of a container that the machine's root runs.
            enterable = self.info.owner_is_root
        except EngineUnavailable:
            enterable = True
        return Capabilities(
            own_root=True,
            namespace=enterable,
            fuse=enterable,  # else the kernel treats files of a FUSE mount as owned by the engine's root
            overlay=True,
            tripwires=True,
            gate="sockets",
            limits=True,
        )

    def answers(self) -> bool:
        return self.info.local

    def start(self) -> ContainerStart:
        if not self.info.local:
            raise EngineUnavailable(
                "this {name} runs elsewhere ({where}), where it sees neither this machine's files nor its sockets; use"
                " one on this machine",
                name=self.name,
                where=self.info.where,
            )
        if self._runtime is not None and self.info.runtimes and self._runtime not in self.info.runtimes:
            raise EngineUnavailable(
                "{name} has no runtime {runtime!r}; it has {others}",
                name=self.name,
                runtime=self._runtime,
                others=", ".join(sorted(self.info.runtimes)),
            )
        return ContainerStart(self.cli, self.info, self._runtime)

    def bring_image(self, config: Config) -> None:
        from sandbox.config.image_choice import asked_image
        from sandbox.engines.container.images import bring

        asked = asked_image(config)
        if asked is not None and not asked.startswith(("/", "~", ".")):  # a directory
            bring(self.cli, asked)

    def findings(self) -> list[Finding]:
        try:
            version = self.info.version
        except EngineUnavailable as problem:
            return [Finding(self.name, False, message_of(problem))]
        from sandbox.engines.doctor import build_one

        how = Message("version {version}", version=version)
        if self.info.rootless:
            how = Message("version {version}, rootless", version=version)
        return [Finding(self.name, True, how), *build_one(self.start)]


def remove(cli: Cli, name: str, guest: Guest | None, pid: int) -> None:
    """Ends the guest, and makes the engine remove the container. Never raises."""
    try:
        ended = os.pidfd_open(pid)
    except OSError:
        ended = -1
    if guest is not None:
        guest.close()  # this makes the guest end everything
    if ended >= 0:
        waiting = select.poll()
        waiting.register(ended, select.POLLIN)
        waiting.poll(_END * 1000)
        os.close(ended)
    try:
        cli.run("rm", "--force", name)
    except CommandFailed as problem:
        if "no such container" not in problem.said.lower():
            _until_removed(cli, name)
    except (EngineUnavailable, OSError):
        pass  # `sandbox prune` removes it


def _until_removed(cli: Cli, name: str) -> None:
    """Waits while the engine removes a container by itself (`--rm`): until then it lists it, and keeps its name."""
    until = time.monotonic() + _END
    try:
        while time.monotonic() < until:
            cli.run("container", "inspect", name)
            time.sleep(0.02)
    except (CommandFailed, EngineUnavailable, OSError):
        pass  # it is gone, or `sandbox prune` removes it


def _wait(listener: socket.socket, process: subprocess.Popen[bytes], errors: BinaryIO, name: str) -> socket.socket:
    """The connection of the container's guest. Raises WallError when the engine could not start it."""
    until = time.monotonic() + PATIENCE
    waiting = select.poll()
    waiting.register(listener.fileno(), select.POLLIN)
    while not waiting.poll(50):
        status = process.poll()
        if status not in (None, 0):
            raise WallError("{name} could not start the container: {said}", name=name, said=said(errors))
        if time.monotonic() > until:
            process.kill()
            process.wait()
            raise WallError(
                "{name} started a container, and its guest did not report: this engine may not see this machine's"
                " files, or runs a kernel of its own",
                name=name,
            )
    descriptor, _ = listener._accept()  # type: ignore[attr-defined]
    return socket.socket(fileno=descriptor)


def _ended(process: subprocess.Popen[bytes], errors: BinaryIO, name: str) -> None:
    """Waits for the engine's command, which ends once the container runs. Raises WallError if it failed."""
    if process.wait() != 0:
        raise WallError("{name} could not start the container: {said}", name=name, said=said(errors))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Waits for the engine's command, so that it starts nothing after the container was removed."""
    import subprocess

    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _peer(channel: _socket.socket) -> int:
    """The pid of the process that connected, in our own namespace, from the kernel. Raises WallError when it is not on
    this machine."""
    pid, uid, _ = unpack("iII", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if pid <= 0 or uid not in (0, os.geteuid()):
        raise WallError("something other than the container's guest reported")
    return int(pid)


def _ulimits() -> dict[str, tuple[int, int]]:
    """The owner's limits. Without them an engine sets its own, and fails where root may not raise a limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    processes = _PROCESSES if most == resource.RLIM_INFINITY else min(most, _PROCESSES)
    return {"nofile": (soft, hard), "nproc": (processes, processes)}


def _seen(plan: Plan) -> list[list[object]]:
    """Paths of the host with device and inode, for the guest to compare: the engine may see different files there."""
    paths = dict.fromkeys(("/", plan.directory, *(bind.source for bind in plan.binds)))
    found = []
    for path in paths:
        info = os.stat(path)
        found.append([os.fsencode(path), info.st_dev, info.st_ino])
    return found
