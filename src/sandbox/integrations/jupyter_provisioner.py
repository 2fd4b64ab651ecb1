"""Jupyter: a kernel provisioner whose kernels live behind walls. See docs/integrations/jupyter.md.

Jupyter writes the connection file and chooses ports, as for a kernel on this machine. The kernel finds a copy
inside and listens there. Only its five ports are published, on this machine's loopback.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from threading import Thread
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Dict

from sandbox.errors import CommandError, SandboxError
from sandbox.i18n import _
from sandbox.protocols import Process
from sandbox.sandbox import Sandbox
from sandbox.vfs.review import printable

CONNECTION = "/tmp/.kernel.json"  # inside
PORTS = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
NAME = "sandbox-python"
NOT_FOUND = 127  # the status of a command that does not exist


class SandboxKernel:
    """A kernel in a sandbox, with the methods of `subprocess.Popen` that `LocalProvisioner` calls."""

    stdin = stdout = stderr = None

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid
        self._reader = Thread(target=self._read, name="sandbox-kernel", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Discards what the kernel prints: notebooks do not use it, and an unread pipe would block the kernel."""
        try:
            with self._process:
                for _chunk in self._process.chunks():
                    pass
        except SandboxError:
            pass  # the sandbox was closed, and the kernel ended with it

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        if self._reader.is_alive():
            return None
        result = self._process.result
        return 1 if result is None else result.exit_code

    def wait(self) -> int | None:
        """Waits for its end. Returns its exit code."""
        self._reader.join()
        return self.poll()

    def send_signal(self, number: int) -> None:
        """Sends a signal. Does nothing when it has ended."""
        if self._reader.is_alive():
            self._process.signal(number)

    def kill(self) -> None:
        """Kills it."""
        self.send_signal(9)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(15)


class SandboxProvisioner(LocalProvisioner):  # type: ignore[misc]
    """`"kernel_provisioner": {"provisioner_name": "sandbox-provisioner", "config": {"sandbox": {...}}}` in kernel.json.

    `sandbox` is a configuration; unless it names a `filesystem.root`, that is the notebook's directory.
    """

    sandbox = Dict(help="The configuration of the kernel's sandbox.").tag(config=True)
    _standing: Sandbox | None = None

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Starts a sandbox and the kernel in it. Raises what `Sandbox()` raises, and FileNotFoundError."""
        await self.cleanup(restart=True)
        root = os.fspath(kwargs.get("cwd") or os.getcwd())
        sandbox = self._standing = Sandbox(self._config(cmd[0], root), command=cmd)
        for notice in sandbox.notices:
            self.log.warning("sandbox: %s", printable(_.text(notice)))
        try:
            manager: Any = self.parent
            file = manager.connection_file
            with open(file, "rb") as written:
                sandbox.write_file(CONNECTION, written.read(), mode=0o600)
            words = [CONNECTION if word == file else word for word in cmd]
            # Only what the kernel's spec names: Jupyter's own environment holds the person's variables.
            self.process = SandboxKernel(sandbox.spawn(words, env=dict(self.kernel_spec.env)))  # type: ignore[assignment]
        except BaseException as problem:
            await self.cleanup()
            if isinstance(problem, CommandError) and problem.exit_code == NOT_FOUND:
                raise FileNotFoundError(errno.ENOENT, str(problem), cmd[0]) from problem
            raise
        self.pid, self.pgid, self.cwd = None, None, root  # its process id means nothing here: no signal may go to it
        return self.connection_info

    def _config(self, program: str, root: str) -> dict[str, Any]:
        given = dict(self.sandbox)
        place = {"root": root, **(given.get("filesystem") or {})}
        place["programs"] = [*place.get("programs", []), program]
        network = dict(given.get("network") or {})
        connection: Mapping[str, Any] = self.connection_info
        ports = [connection[name] for name in PORTS]
        network["publish"] = [*network.get("publish", []), *(f"127.0.0.1:{port}:{port}" for port in ports)]
        return {**given, "filesystem": place, "network": network}

    async def cleanup(self, restart: bool = False) -> None:
        """Ends the sandbox; a restarted kernel gets a new one."""
        sandbox, self._standing = self._standing, None
        if sandbox is not None:
            sandbox.close()
        await super().cleanup(restart)


def install(name: str = NAME, config: Mapping[str, Any] | None = None) -> str:
    """Makes a kernel "Python (sandbox)" known to Jupyter, for this user. Returns where its spec is."""
    provisioner = {"provisioner_name": "sandbox-provisioner", "config": {"sandbox": dict(config or {})}}
    spec = {
        "argv": [os.path.abspath(sys.executable), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python (sandbox)",
        "language": "python",
        "metadata": {"kernel_provisioner": provisioner},
    }
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "kernel.json"), "w", encoding="utf-8") as file:
            json.dump(spec, file, indent=1)
        return str(KernelSpecManager().install_kernel_spec(directory, name, user=True))


if __name__ == "__main__":
    print(install())
