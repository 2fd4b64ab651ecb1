"""macOS: `sandbox-exec` with a profile around a guest in Python (`guest/python_guest.py`); the gate is on the loopback.

Tenants see the machine's own paths, processes and loopback; the profile says which of them they may touch. The guest is
inside the profile, so what it does for the owner (commands, file operations) has a tenant's rights and no more.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import suppress

from sandbox.config.home import own_directories
from sandbox.engines import seatbelt_profile
from sandbox.engines.base import Capabilities, Engine, Finding, GuestRunning, Started
from sandbox.engines.launch import Launch
from sandbox.errors import EngineUnavailable, Message, SandboxClosed, WallError
from sandbox.host_process import descendants
from sandbox.policy.protected import protected_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.plan.plan import Plan

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GUEST = "import sys; sys.path.insert(0, {!r}); from sandbox.guest.python_guest import main; main()"


class Seatbelt(Engine):
    name = "seatbelt"
    can = Capabilities(own_root=False, gate="proxy")

    def start(self) -> SeatbeltStart:
        if not os.access(seatbelt_profile.SANDBOX_EXEC, os.X_OK):
            raise EngineUnavailable(
                "{program} is missing: the seatbelt engine is for macOS", program=seatbelt_profile.SANDBOX_EXEC
            )
        return SeatbeltStart()

    def findings(self) -> list[Finding]:
        program = seatbelt_profile.SANDBOX_EXEC
        return [Finding("sandbox-exec", os.access(program, os.X_OK), program, "the seatbelt engine is for macOS")]


class SeatbeltStart(Started):
    """A directory for the tenants. Nothing else can start before the profile is written."""

    def __init__(self) -> None:
        self.directory = self._own = os.path.realpath(tempfile.mkdtemp(prefix="sandbox-"))
        self._listener: socket.socket | None = None

    def build(self, plan: Plan) -> SeatbeltRunning:
        launch: Launch | None = None
        try:
            self._listener = socket.create_server(("127.0.0.1", 0))
            port = int(self._listener.getsockname()[1])
            self._write_files(plan, port)
            launch = Launch(seatbelt_profile.arguments(self._profile(plan, port), _guest()))
            try:
                launch.greet()
                launch.guest.set_up({})
            except SandboxClosed:
                said = launch.words() or Message("no message")
                raise WallError("sandbox-exec could not start the guest: {said}", said=said) from None
            return SeatbeltRunning(launch, self._listener, self._own, self._proxies(plan, port))
        except BaseException:
            if launch is not None:
                launch.abandon()
            self.abandon()
            raise

    def abandon(self) -> None:
        if self._listener is not None:
            self._listener.close()
        shutil.rmtree(self._own, ignore_errors=True)

    def _profile(self, plan: Plan, port: int) -> str:
        assert plan.config is not None
        return seatbelt_profile.profile(
            plan.config,
            root=plan.directory,
            home=os.path.realpath(os.path.expanduser("~")),
            scratch=self._own,
            proxy_port=port,
            protected=protected_names(plan.config.filesystem),
            hidden=own_directories(plan.config),
            programs=(os.path.realpath(sys.base_prefix), PACKAGE),
        )

    def _write_files(self, plan: Plan, port: int) -> None:
        os.mkdir(f"{self.directory}/home", 0o700)
        script = seatbelt_profile.ssh_proxy_script(port, plan.proxy_token or "").encode()
        for path, mode, content in (*plan.files, (f"{self.directory}/ssh-proxy", 0o700, script)):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)

    def _proxies(self, plan: Plan, port: int) -> dict[str, str]:
        return seatbelt_profile.proxy_environment(port, plan.proxy_token or "", f"{self.directory}/ssh-proxy")


class SeatbeltRunning(GuestRunning):
    def __init__(self, launch: Launch, listener: socket.socket, directory: str, environment: dict[str, str]) -> None:
        super().__init__(launch.guest)
        self.environment = environment
        self._launch = launch
        self._directory = directory
        self._closed = False
        self._listener: socket.socket | None = listener

    def take_sockets(self) -> dict[str, socket.socket]:
        listener, self._listener = self._listener, None
        return {"proxy": listener} if listener is not None else {}

    def dial(self, address: str, port: int) -> socket.socket:
        return socket.create_connection((address, port))  # tenants share the machine's loopback

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            # The guest cannot kill processes that started sessions; once it has ended, nothing shows they were ours.
            left = descendants(self._launch.pid, proc=False)
            self._launch.abandon()
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        for listener in self.take_sockets().values():
            listener.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _guest() -> list[str]:
    # The interpreter itself, not a virtual environment's link to it: nothing in the environment is needed.
    python = getattr(sys, "_base_executable", None) or sys.executable
    return [python, "-I", "-S", "-c", GUEST.format(os.path.dirname(PACKAGE))]
