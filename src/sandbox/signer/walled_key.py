"""Starts the process with the key in a sandbox of our own: no host to reach, nothing to write, nothing of the home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import sandbox as package
from sandbox.config.signing_section import Signing
from sandbox.errors import ConfigError
from sandbox.guest.process import Process
from sandbox.sandbox import Sandbox
from sandbox.signing import paths
from sandbox.signing.backends.key_pipe import KeyPipe

_OWN = os.path.realpath(os.path.dirname(package.__file__))
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from sandbox.signing.key_process import main; main()"
# Behind the standard library: what a tenant may have left beside the package, or in this directory, is never imported.
_HAND_OVER = (
    "import sys; sys.path.append(sys.argv.pop(1)); from sandbox.signer.hand_over import main; main(sys.argv[1:])"
)


class ClosedSandbox(Sandbox):
    """A sandbox that nobody can attach to: no other command may run beside the key."""

    _attachable = False


def walled_key(signing: Signing, abis: dict[str, Any], password: int | None) -> tuple[KeyPipe, Sandbox]:
    """The backend for a keystore. `password` is a descriptor; without one it is asked for. Raises SandboxError."""
    if signing.keystore is None:
        raise ConfigError("the backend keystore needs a file", path="signing.keystore")
    os.makedirs(paths.directory(), mode=0o700, exist_ok=True)
    room = tempfile.mkdtemp(prefix="room-", dir=None)
    box = ClosedSandbox(settings(room), command=["signer"])
    try:
        with open(paths.key_sandbox(), "w", encoding="ascii") as file:
            file.write(box.id)
        program = [sys.executable, "-I", "-c", _PROGRAM, os.path.dirname(_OWN)]
        process = box.spawn(program, room)
        assert isinstance(process, Process)
        assert process.stdin is not None
        assert process.stdout is not None
        _hand_over(os.path.expanduser(signing.keystore), password, process.stdin)

        def end() -> None:
            process.close()
            box.close()
            shutil.rmtree(room, ignore_errors=True)

        write = os.fdopen(os.dup(process.stdin), "wb")
        read = os.fdopen(os.dup(process.stdout), "rb")
        return KeyPipe(write, read, signing, abis, end), box
    except BaseException:
        box.close()
        shutil.rmtree(room, ignore_errors=True)
        raise


def settings(room: str) -> dict[str, Any]:
    """What it sees: the interpreter and its packages, read-only; an empty directory; nothing else."""
    code = {os.path.realpath(path) for path in (_OWN, *sys.path) if path.endswith("-packages") or path == _OWN}
    return {
        "filesystem": {
            "root": room,
            "read_only": True,
            "programs": [sys.executable],
            "allow_read": sorted(path for path in code if os.path.isdir(path)),
            "blocked_patterns": [],
            "toolchains": False,
        },
        "network": {"allowed_hosts": [], "allow_git": False},
        "caches": [],
        "signing": {"enabled": False},
    }


def _hand_over(keystore: str, password: int | None, target: int) -> None:
    words = [sys.executable, "-I", "-S", "-c", _HAND_OVER, os.path.dirname(_OWN), keystore]
    passed: tuple[int, ...] = ()
    if password is not None:
        words.append(str(password))
        passed = (password,)
    subprocess.run(words, stdout=target, pass_fds=passed, check=True)
