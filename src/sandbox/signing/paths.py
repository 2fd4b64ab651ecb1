"""Where the signer keeps things: under the sandbox home, which no sandbox sees."""

from __future__ import annotations

import os
import socket

from sandbox.config.home import home

_LONGEST = 100  # bytes of a Unix socket's path, with some room


def directory() -> str:
    return os.path.join(home(), "signing")


def ledger() -> str:
    return os.path.join(directory(), "ledger.db")


def ask_socket() -> str:
    """The socket at which signatures are asked for."""
    return os.path.join(directory(), "ask")


def approve_socket() -> str:
    """The socket at which a person decides."""
    return os.path.join(directory(), "approve")


def approver_secret() -> str:
    """The file with the owner's secret, which the command line shows to the signer."""
    return os.path.join(directory(), "approver")


def key_sandbox() -> str:
    """The file with the id of the sandbox that the key is in."""
    return os.path.join(directory(), "sandbox")


def holds_key(sandbox: str) -> bool:
    """Whether that is the sandbox of the signer's key."""
    try:
        with open(key_sandbox(), encoding="ascii") as file:
            return file.read(256) == sandbox
    except OSError:
        return False


def connect(path: str, timeout: float) -> socket.socket:
    """A connection to a Unix socket, however long its path. Raises OSError."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(timeout)
    try:
        with _short(path) as short:
            line.connect(short.path)
    except BaseException:
        line.close()
        raise
    return line


def listen(path: str) -> socket.socket:
    """A listening Unix socket that this user alone can connect to. One that a killed process left is replaced."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.lexists(path):
            os.unlink(path)
        with _short(path) as short:
            line.bind(short.path)
        os.chmod(path, 0o600)
        line.listen(1024)  # so that a gate flooded from inside does not find it full
    except BaseException:
        line.close()
        raise
    return line


class _short:
    """A path that fits into a socket's address, for as long as it is used."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._directory = -1
        if len(os.fsencode(path)) > _LONGEST:
            self._directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.path = f"/proc/self/fd/{self._directory}/{os.path.basename(path)}"

    def __enter__(self) -> _short:
        return self

    def __exit__(self, *_: object) -> None:
        if self._directory >= 0:
            os.close(self._directory)
