"""Commands that a launcher (guest/launcher/) starts in a running sandbox, as if they were the launcher's own.

A program that embeds us starts the launcher as it would start the command: a few milliseconds, without an interpreter.
The protocol is in guest/launcher/protocol.md. No descriptor of the caller's reaches a tenant, but for an anonymous pipe
as input: the launcher copies from and to pipes of the sandbox's own, which it gets from here.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from array import array
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from sandbox.errors import CommandError, GuestError, SandboxClosed, SandboxError
from sandbox.guest import frames
from sandbox.policy.environment import EnvFilter
from sandbox.processes import Launched
from sandbox.rpc.listen import same_user

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.guest.process import Process
    from sandbox.sandbox import Sandbox

NAME = "launch"
_MOST = 256  # at a time
_WORD = struct.Struct("=c3xi")


class Launches:
    """Serves the launchers of one sandbox until it ends."""

    def __init__(self, sandbox: Sandbox) -> None:
        """Raises OSError when there can be no such socket."""
        registration = sandbox._register()
        self.path = f"{registration.path}/{NAME}"
        self._sandbox = sandbox
        self._connections: set[socket.socket] = set()
        self._lock = Lock()
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.fchmod(self._listener.fileno(), 0o600)
        self._beside = registration.beside(NAME)
        self._listener.bind(self._beside)
        os.chmod(self._beside, 0o600)
        self._listener.listen(64)
        Thread(target=self._accept, name="sandbox-launches", daemon=True).start()

    def close(self) -> None:
        """Starts nothing more. What runs ends with the sandbox. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            os.unlink(self._beside)
        except OSError:
            pass
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                room = len(self._connections) < _MOST and not self._closed
                if room and same_user(connection):
                    self._connections.add(connection)
                else:
                    connection.close()
                    continue
            Thread(target=self._serve, args=(connection,), name="sandbox-launch", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                _Launch(self._sandbox, connection).run()
        except (SandboxError, OSError):
            pass  # the launcher has gone, or the sandbox has ended: the closed connection says so
        finally:
            with self._lock:
                self._connections.discard(connection)


class _Launch:
    """One command, from a launcher's request to its end."""

    def __init__(self, sandbox: Sandbox, connection: socket.socket) -> None:
        self._sandbox = sandbox
        self._connection = connection
        self._mine: list[int] = []

    def run(self) -> None:
        asked, fds = frames.receive(self._connection)
        self._mine += fds
        try:
            process = self._start(asked, fds)
            with process:
                Thread(target=self._listen, args=(process,), name="sandbox-launch", daemon=True).start()
                result = process.wait()
        except CommandError as problem:
            text = str(problem).encode()[:4096]
            self._say(b"F", problem.exit_code, struct.pack("=I", len(text)) + text)
            return
        finally:
            self._close()
        if result.signal is not None:
            self._say(b"K", result.signal)
        else:
            self._say(b"X", result.exit_code)

    def _start(self, asked: dict[str, Any], fds: list[int]) -> Process:
        """Raises CommandError when it never ran, GuestError for a request that makes no sense."""
        if asked["t"] != "launch" or len(fds) != (asked.get("stdin") == "given"):
            raise GuestError("a launcher asks for something unknown")
        more = Launched(
            environment=environment(self._sandbox, _variables(_strings(asked, "env"))),
            umask=_number(asked, "umask", 0o777),
            label=os.fsdecode(_string(asked, "label")),
        )
        argv, directory = _strings(asked, "argv"), os.fsdecode(_string(asked, "cwd"))
        size = asked.get("pty")
        if isinstance(size, dict):
            pty = (_number(size, "rows", 65535), _number(size, "cols", 65535))
            process = self._sandbox._spawn(argv, directory, pty=pty, more=more)
            assert process.terminal is not None
            master, process.terminal = process.terminal, None  # the launcher reads and writes it, not we
            self._mine.append(master)
            self._hand_over([master])
            return process
        theirs, ours = self._pipes(asked, fds)
        process = self._sandbox._spawn(argv, directory, stdio=theirs, more=more)
        self._hand_over(ours)
        return process

    def _pipes(self, asked: dict[str, Any], fds: list[int]) -> tuple[tuple[int | None, int, int], list[int]]:
        """The tenant's ends of its three streams, and the ends that the launcher gets."""
        ours: list[int] = []
        if asked["stdin"] == "relayed":
            given, write = self._pipe()
            ours.append(write)
        elif asked["stdin"] == "given":
            given = fds[0]
            if not _anonymous_pipe(given):
                raise GuestError("a launcher sent a descriptor that is not a pipe")
        else:
            null = self._sandbox._null
            given = os.open(os.devnull, os.O_RDONLY) if null is None else os.dup(null)
            self._mine.append(given)
        read, out = self._pipe()
        ours.append(read)
        if asked.get("merged") is True:
            return (given, out, out), ours
        read, error = self._pipe()
        ours.append(read)
        return (given, out, error), ours

    def _pipe(self) -> tuple[int, int]:
        both = os.pipe()
        self._mine += both
        return both

    def _hand_over(self, fds: list[int]) -> None:
        self._connection.sendmsg(
            [_WORD.pack(b"S", len(fds))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))]
        )
        self._close()  # only the tenant and the launcher hold them now, so that each sees the other's end

    def _close(self) -> None:
        mine, self._mine = self._mine, []
        frames.close_all(mine)

    def _say(self, letter: bytes, value: int, more: bytes = b"") -> None:
        self._connection.sendall(_WORD.pack(letter, value) + more)

    def _listen(self, process: Process) -> None:
        """Passes signals on. When the launcher goes, the command goes."""
        try:
            while len(word := self._connection.recv(_WORD.size, socket.MSG_WAITALL)) == _WORD.size:
                letter, number = _WORD.unpack(word)
                if letter == b"G" and 0 < number < 65:
                    process.signal(number)
            if process.result is None:
                process.kill()
        except (OSError, SandboxClosed, GuestError):
            pass  # it has ended


def environment(sandbox: Sandbox, given: Mapping[str, str]) -> dict[str, str]:
    """What the command gets of the launcher's variables: those that the rules let through, and the sandbox's own.

    The sandbox's own are those that it did not take from its owner's variables as they are: the home, the placeholders
    of secrets, where certificates lie. PATH is the launcher's, if that was changed for this command.
    """
    rules = EnvFilter(sandbox.config.environment)
    passed, ours = rules.filter(given), sandbox._plan.environment
    at_start = rules.filter(os.environ)
    own = {name: value for name, value in ours.items() if at_start.get(name) != value or name in rules.set}
    if given.get("PATH", os.environ.get("PATH")) != os.environ.get("PATH"):
        own.pop("PATH", None)
    return {**passed, **own}


def _anonymous_pipe(fd: int) -> bool:
    return stat.S_ISFIFO(os.fstat(fd).st_mode) and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:")


def _variables(entries: list[bytes]) -> dict[str, str]:
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, equals, value in pairs if equals and name}


def _string(asked: Mapping[str, Any], key: str) -> bytes:
    value = asked.get(key)
    if not isinstance(value, bytes) or b"\0" in value:
        raise GuestError("a launcher sent no {key}", key=key)
    return value


def _strings(asked: Mapping[str, Any], key: str) -> list[bytes]:
    value = asked.get(key)
    if not isinstance(value, list) or not all(isinstance(one, bytes) for one in value):
        raise GuestError("a launcher sent no {key}", key=key)
    return value


def _number(asked: Mapping[str, Any], key: str, most: int) -> int:
    value = asked.get(key)
    if type(value) is not int or not 0 <= value <= most:
        raise GuestError("a launcher sent no {key}", key=key)
    return value
