"""Runs a command under Seatbelt, on macOS: the gate on the loopback, the profile, and `sandbox-exec`.

There is no guest on macOS, so this is for commands in the foreground (`sandbox run`, `srt`), not for `Sandbox`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from typing import TYPE_CHECKING

from sandbox.audit.record import Record
from sandbox.config.home import home as sandbox_home
from sandbox.engines import seatbelt
from sandbox.errors import CommandError, EngineUnavailable, SandboxError
from sandbox.network.gate_thread import GateThread
from sandbox.network.secrets.placeholders import placeholders
from sandbox.policy.environment import EnvFilter
from sandbox.policy.files import PROTECTED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox.config.model import Config

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Enclosure:
    """What one command under Seatbelt needs, from its scratch directory to its gate. `close()` leaves nothing."""

    def __init__(self, config: Config, *, resolve: Callable[[str, int], Sequence[str]] | None = None) -> None:
        self.id = f"vm-{os.urandom(4).hex()}"
        self._config = config
        self._root = os.path.realpath(os.path.expanduser(config.filesystem.root))
        directory = os.path.expanduser(config.audit.directory or os.path.join(sandbox_home(), "audit"))
        self._record = Record(directory, sandbox=self.id, rotate_size=config.audit.rotate_size)
        self._scratch = os.path.realpath(tempfile.mkdtemp(prefix="sandbox-"))
        self._token = os.urandom(16).hex()
        try:
            listener = socket.create_server(("127.0.0.1", 0))
            self._port: int = listener.getsockname()[1]
            self._watch = GateThread(
                {"proxy": listener},
                config.network,
                sandbox_id=self.id,
                emit=lambda event: None,
                record=self._record.write,
                dial=lambda address, port: socket.create_connection((address, port)),
                resolve=resolve,
                placeholders=placeholders(config.network.secrets),
                proxy_token=self._token,
            )
            self._watch.start()
        except BaseException:
            self._give_back()
            raise

    def environment(self) -> dict[str, str]:
        """The tenant's variables. Its home is empty: the real one is not for it."""
        chosen = EnvFilter(self._config.environment).filter(os.environ)
        for name, value in chosen.items():
            for secret, placeholder in self._watch.placeholders.items():
                value = value.replace(f"${{{secret}}}", placeholder)
            chosen[name] = value
        script = self._file("ssh-proxy", seatbelt.ssh_proxy_script(self._port, self._token).encode(), 0o700)
        os.makedirs(os.path.join(self._scratch, "home"), exist_ok=True)
        chosen |= {"TMPDIR": self._scratch, "HOME": os.path.join(self._scratch, "home")}
        chosen |= seatbelt.proxy_environment(self._port, self._token, script)
        authority = self._watch.ca_certificate()
        if authority is not None:
            from sandbox.network.tls.trust import trusted

            trust = trusted(authority, directory=self._scratch)
            for path, mode, content in trust.files:
                self._file(os.path.basename(path), content, mode)
            chosen |= trust.environment
        return chosen

    def arguments(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` behind the profile."""
        text = seatbelt.profile(
            self._config,
            root=self._root,
            home=os.path.realpath(os.path.expanduser("~")),
            scratch=self._scratch,
            proxy_port=self._port,
            protected=PROTECTED,
        )
        return seatbelt.arguments(text, command)

    def run(self, command: Sequence[str]) -> int:
        """Runs it in the foreground; its exit status, or 128 and the signal's number."""
        if not os.access(seatbelt.SANDBOX_EXEC, os.X_OK):
            raise EngineUnavailable(
                "{SANDBOX_EXEC} is missing: the seatbelt engine is for macOS", SANDBOX_EXEC=seatbelt.SANDBOX_EXEC
            )
        self._record.write("sandbox_lifecycle", "ready", metadata={"engine": "seatbelt", "mode": self._config.mode})
        try:
            child = subprocess.Popen(self.arguments(command), cwd=self._root, env=self.environment())
        except OSError as problem:
            raise CommandError("{command}: {reason}", command=command[0], reason=problem.strerror) from problem
        before = {number: signal.signal(number, lambda got, _: child.send_signal(got)) for number in _FORWARDED}
        try:
            status = child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if child.poll() is None:
                child.kill()
        return status if status >= 0 else 128 - status

    def close(self) -> None:
        """Ends the gate and removes the scratch directory."""
        self._watch.close()
        self._record.write("sandbox_lifecycle", "stopped")
        self._give_back()

    def _give_back(self) -> None:
        self._record.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _file(self, name: str, content: bytes, mode: int) -> str:
        path = os.path.join(self._scratch, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
        return path

    def __enter__(self) -> Enclosure:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(config: Config, command: Sequence[str]) -> int:
    """One command under Seatbelt. Raises SandboxError for what was asked for and cannot be had there."""
    limits = [f"limits.{name}" for name in config.limits.fields if getattr(config.limits, name) is not None]
    mounts = ["vfs"] if config.vfs.mounts or config.vfs.direct_mounts else []
    overlay = ["filesystem.overlay"] if config.filesystem.overlay or config.mode == "max" else []
    asked = [*limits, *mounts, *overlay, *(["network.publish"] if config.network.publish else [])]
    if asked:
        raise SandboxError(
            "the seatbelt engine does not support {asked}; remove it or use another engine", asked=asked[0]
        )
    with Enclosure(config) as enclosure:
        return enclosure.run(command)
