"""The engine `apple-container`: a virtual machine for each sandbox, made by Apple's `container`, with our guest in it.

No socket and no descriptor crosses into a machine. So the guest talks over the command's stdin and stdout, in frames,
and accepts tenants' connections for the gate (guest/gate.c). What the plan shows is shared with the machine, and the
guest builds from it what tenants see, as in any other container. Never run on a Mac: docs/limits.md.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
from functools import cached_property

from sandbox.engines.apple.arguments import refuse_missing, run_arguments
from sandbox.engines.base import Capabilities, Engine, Finding, GuestRunning, Started
from sandbox.engines.container import cli
from sandbox.engines.container.arguments import STAGE
from sandbox.engines.container.cli import APPLE, Cli, CommandFailed, printable, said
from sandbox.engines.container.guest_directory import GuestDirectory
from sandbox.engines.container.images import empty_image
from sandbox.engines.container.leftovers import labels
from sandbox.errors import ConfigError, EngineUnavailable, Message, SandboxClosed, WallError, message_of
from sandbox.guest.binary import guest_binary
from sandbox.guest.framed import FramedGuest
from sandbox.plan.mount_operations import Cover

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from sandbox.config.model import Config
    from sandbox.plan.plan import Plan

PATIENCE = 60.0  # seconds until a started machine's guest reports
_END = 5.0  # seconds for a machine to end by itself
_FSIZE, _NPROC, _NOFILE = 1, 6, 7  # as Linux numbers them; on a Mac some differ


class AppleRunning(GuestRunning):
    """A machine whose guest is set up."""

    def __init__(
        self, cli: Cli, name: str, guest: FramedGuest, process: subprocess.Popen[bytes], directory: GuestDirectory
    ) -> None:
        super().__init__(guest)
        self.have = guest.have
        self._cli = cli
        self._name = name
        self._process = process
        self._directory = directory
        self._closed = False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        _remove(self._cli, self._name, self._guest, self._process)
        self._directory.remove()


class AppleStart(Started):
    """An engine that answered."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli

    def build(self, plan: Plan) -> AppleRunning:
        refuse_missing(plan)
        image = empty_image(self._cli)
        directory = GuestDirectory(plan.id, listens=False)
        try:
            words = run_arguments(plan, shelf=directory.path, image=image, labels=labels(plan.id))
            with tempfile.TemporaryFile() as errors:
                guest, process = self._started(words, errors)
                try:
                    _set_up(plan, guest, errors)
                except BaseException:
                    _remove(self._cli, plan.container_name, guest, process)
                    raise
        except BaseException:
            directory.remove()
            raise
        return AppleRunning(self._cli, plan.container_name, guest, process, directory)

    def _started(self, words: list[str], errors: BinaryIO) -> tuple[FramedGuest, subprocess.Popen[bytes]]:
        from socket import socketpair

        ours, theirs = socketpair()
        with theirs:
            try:
                process = self._cli.start(words, errors, stdin=theirs.fileno(), stdout=theirs.fileno())
            except BaseException:
                ours.close()
                raise
        return FramedGuest(ours), process

    def abandon(self) -> None:
        pass  # nothing has been started


class AppleContainer(Engine):
    name = APPLE
    can = Capabilities(own_root=True, gate="sockets", limits=True, programs=False, descriptors=False)

    def __init__(self, runtime: str | None = None) -> None:
        self._runtime = runtime

    @cached_property
    def cli(self) -> Cli:
        """The engine's command. Raises EngineUnavailable."""
        if cli.PLATFORM != "darwin":
            raise EngineUnavailable("Apple's `container` runs on macOS only")
        return Cli(self.name)

    @cached_property
    def version(self) -> str:
        """Of the service that answers. Raises EngineUnavailable."""
        try:
            told = self.cli.json("system", "status", "--format", "json")
        except CommandFailed as problem:
            raise EngineUnavailable(
                "{name} is installed but does not answer ({said}). {remedy}",
                name=self.name,
                said=problem.said,
                remedy=Message("`container system start` starts it"),
            ) from None
        if not isinstance(told, dict) or told.get("status") != "running":
            raise EngineUnavailable("{name} prints nothing about itself (`{name} info`)", name=self.name)
        return printable(str(told.get("apiServerVersion", "")))[:100]

    def answers(self) -> bool:
        return bool(self.version)

    def ignores(self, config: Config) -> Iterator[str]:
        """Raises ConfigError when nothing that can run in a machine is asked for."""
        from sandbox.config.image_choice import asked_image

        if _on_a_mac() and asked_image(config) is None:
            raise ConfigError(
                "this machine's own programs do not run in a Linux container; name an image, such as python:3.12",
                path="image",
            )
        if config.runtime is not None:
            yield "runtime"
        if config.filesystem.show_host:
            yield "filesystem.show_host"
        if config.network.unix_sockets:
            yield "network.unix_sockets"  # a socket of the host can be seen in the machine, but nobody answers there

    def bring_image(self, config: Config) -> None:
        from sandbox.config.image_choice import asked_image
        from sandbox.engines.container.images import bring

        asked = asked_image(config)
        if asked is not None and not asked.startswith(("/", "~", ".")):  # a directory
            bring(self.cli, asked)

    def start(self) -> AppleStart:
        _ = self.version
        return AppleStart(self.cli)

    def findings(self) -> list[Finding]:
        try:
            version = self.version
        except EngineUnavailable as problem:
            return [Finding(self.name, False, message_of(problem))]
        from sandbox.engines.doctor import build_plan

        how = Message("version {version}", version=version)
        return [Finding(self.name, True, how), *build_plan(self.start, _empty_plan)]


def _empty_plan() -> Plan:
    """A sandbox with nothing in it, for `sandbox doctor`: a Mac's own programs would not run in it."""
    from sandbox.plan.plan import Plan

    plan = Plan()
    plan.id = f"doctor-{os.urandom(4).hex()}"
    plan.show(os.path.dirname(guest_binary()), "/guest", False)
    plan.scratch, plan.scratch_size = [("/tmp", 0o1777)], 1 << 20
    plan.writable = ["/tmp", "/dev", "/proc"]
    return plan


def _set_up(plan: Plan, guest: FramedGuest, errors: BinaryIO) -> None:
    """Waits for the guest, and has it build what the plan says. Raises WallError."""
    waiting = select.poll()
    waiting.register(guest.report_socket().fileno(), select.POLLIN)
    if not waiting.poll(PATIENCE * 1000):
        raise WallError("{name} started a machine, and its guest did not report", name=APPLE)
    try:
        guest.greet()
        guest.set_up(setup(plan))
    except SandboxClosed:
        raise WallError("{name} could not start the container: {said}", name=APPLE, said=said(errors)) from None


def setup(plan: Plan) -> dict[str, object]:
    """The guest's set-up. The files' numbers are others in the machine, so covers cannot be compared by them."""
    for one in (*plan.covers, *plan.served):
        if isinstance(one, Cover) and one.inode is not None:
            one.inode = 0
    limits = plan.limits
    wanted = (
        (_FSIZE, limits.file_size),
        (_NOFILE, limits.open_files),
        (_NPROC, None if plan.pids is None else plan.pids + 1),  # the guest is one of them
    )
    return {
        **plan.setup(STAGE),
        "hostname": plan.hostname.encode(),
        "carried": True,
        "rlimits": [[kind, most, most] for kind, most in wanted if most is not None],
        # As in the files' attributes, which the machine sees as they are. And the kernel counts no processes of root's.
        "container": {
            "uid": os.geteuid() if _on_a_mac() else 0,
            "gid": os.getegid() if _on_a_mac() else 0,
            "seen": [],
        },
    }


def _on_a_mac() -> bool:
    """False where a stand-in of the tests runs, which has no user but root."""
    return os.uname().sysname == "Darwin"


def _remove(cli: Cli, name: str, guest: object, process: subprocess.Popen[bytes]) -> None:
    """Ends the guest, and with it the machine; what does not end is removed. Never raises."""
    assert isinstance(guest, FramedGuest)
    guest.close()
    try:
        if process.wait(_END) == 0:
            return
    except subprocess.TimeoutExpired:
        pass
    try:
        cli.run("delete", "--force", name)
    except (CommandFailed, EngineUnavailable, OSError):
        pass  # it is gone; otherwise `sandbox prune` removes it
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
