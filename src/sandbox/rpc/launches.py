"""Commands that a launcher (guest/launcher/) starts in a running sandbox, as if they were the launcher's own.

A program that embeds us starts the launcher as it would start the command. That takes a few milliseconds and needs no
interpreter. The protocol is in guest/launcher/protocol.md. No descriptor of the caller reaches a tenant, except an
anonymous pipe as input: the launcher copies from and to the sandbox's own pipes, which it gets from here.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
import time
from array import array
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from sandbox.errors import CommandError, GuestError, InvalidArgument
from sandbox.guest import frames
from sandbox.guest.cbor import EncodedOnce
from sandbox.policy.environment import EnvFilter
from sandbox.policy.plain_words import with_defaults, without_shell
from sandbox.processes import Launched
from sandbox.rpc.same_user import same_user
from sandbox.sockets import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.guest.process import Process
    from sandbox.rpc.event_queue import EventQueue
    from sandbox.sandbox import Sandbox

NAME = "launch"
_MOST = 256  # at once; more have to wait
_PATIENCE = 1.0  # seconds: a busy machine may not run the thread that delivers for a tenth of one
_NOT_RUNNABLE = 126
_SPARE = 4  # threads that wait for the next launcher
_WORD = struct.Struct("=c3xi")


class Launches:
    """Serves the launchers of one sandbox until it ends."""

    def __init__(self, sandbox: Sandbox) -> None:
        """Raises OSError when the socket cannot be created."""
        registration = sandbox._register()
        self.path = f"{registration.path}/{NAME}"
        self.notes = registration.notes()
        self.sandbox = sandbox
        self.environments = Environments(sandbox)
        self.told: WeakSet[EventQueue] = WeakSet()  # of clients that must get a command's refusals before its end
        self.ending = Lock()  # held while a launcher, and then everybody else, is told of a command's end
        self._lock = Lock()
        self._threads = self._idle = 0
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.fchmod(self._listener.fileno(), 0o600)
        self._beside = registration.beside(NAME)
        self._listener.bind(self._beside)
        os.chmod(self._beside, 0o600)
        self._listener.listen(64)
        with self._lock:
            self._start()

    def close(self) -> None:
        """Starts no more commands. Running ones end with the sandbox. Idempotent."""
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

    def _start(self) -> None:
        """Starts one more thread that accepts. The caller holds the lock."""
        Thread(target=self._accept, name="sandbox-launches", daemon=True).start()
        self._threads += 1
        self._idle += 1

    def _accept(self) -> None:
        """Serves one connection after another. Starts a thread to accept the next one when no other thread is idle."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as problem:
                if problem.errno in TEMPORARY and not self._closed:
                    time.sleep(0.1)  # out of descriptors, say: the socket itself still works
                    continue
                with self._lock:
                    self._idle -= 1
                    self._threads -= 1
                return
            with self._lock:
                self._idle -= 1
                if self._idle == 0 and self._threads < _MOST and not self._closed:
                    try:
                        self._start()
                    except RuntimeError:
                        pass  # no thread can be started: the next launcher waits for this one
            try:
                with connection:
                    if same_user(connection):
                        _Launch(self, connection).run()
            except Exception:  # noqa: BLE001 - whatever it was, the next launcher needs this thread
                pass  # the launcher is gone or its request invalid, or the sandbox has ended: closing tells it
            with self._lock:
                if self._idle >= _SPARE:
                    self._threads -= 1
                    return
                self._idle += 1


class _Launch:
    """One command, from a launcher's request to its end."""

    def __init__(self, launches: Launches, connection: socket.socket) -> None:
        self._launches = launches
        self._sandbox = launches.sandbox
        self._connection = connection
        self._mine: list[int] = []

    def run(self) -> None:
        asked, fds = frames.receive(self._connection)
        self._mine += fds
        try:
            more = self._launched(asked)
            process = self._start(asked, fds, more)
            with process:
                self._until_the_end(process)
                self._tell_the_end(process, more)
        except (CommandError, InvalidArgument) as problem:
            text = str(problem).encode(errors="backslashreplace")[:4096]  # names need not be UTF-8
            status = problem.exit_code if isinstance(problem, CommandError) else _NOT_RUNNABLE
            self._say(b"F", status, struct.pack("=I", len(text)) + text)
            return
        finally:
            self._close()

    def _tell_the_end(self, process: Process, more: Launched) -> None:
        """Tells the launcher first: somebody waits for it, and may then ask what the command was refused."""
        result = process.result
        assert result is not None
        for queue in list(self._launches.told):
            queue.settle(("network", "file"), _PATIENCE)
        with self._launches.ending:
            try:
                self._say(b"X", result.exit_code) if result.signal is None else self._say(b"K", result.signal)
            finally:
                more.announce()

    def _launched(self, asked: dict[str, Any]) -> Launched:
        """Raises GuestError for an invalid request."""
        if asked["t"] != "launch":
            raise GuestError("a launcher asks for something unknown")
        variables = self._launches.environments.of(_string(asked, "env", nul=True))
        directory, argv = os.fsdecode(_string(asked, "cwd")), _strings(asked, "argv")
        direct = without_shell(argv, variables.by_name, directory)
        return Launched(
            pairs=variables.pairs if direct is None else variables.as_by_bash(directory),
            umask=_number(asked, "umask", 0o777),
            label=os.fsdecode(_string(asked, "label")),
            direct=direct,
        )

    def _start(self, asked: dict[str, Any], fds: list[int], more: Launched) -> Process:
        """Starts the command. Raises CommandError if it cannot run, GuestError for an invalid request."""
        if len(fds) != (asked.get("stdin") == "given"):
            raise GuestError("a launcher asks for something unknown")
        with self._launches.ending:  # another command's end is announced before the start of this one
            pass
        argv, directory = _strings(asked, "argv"), os.fsdecode(_string(asked, "cwd"))
        size = asked.get("pty")
        if isinstance(size, dict):
            pty = (_number(size, "rows", 65535), _number(size, "cols", 65535))
            process = self._sandbox._spawn(argv, directory, pty=pty, more=more)
            assert process.terminal is not None
            master, process.terminal = process.terminal, None  # the launcher reads and writes it; we do not
            self._mine.append(master)
            return self._hand_over(process, [master])
        theirs, ours = self._pipes(asked, fds)
        process = self._sandbox._spawn(argv, directory, stdio=theirs, more=more)
        return self._hand_over(process, ours)

    def _pipes(self, asked: dict[str, Any], fds: list[int]) -> tuple[tuple[int | None, int, int], list[int]]:
        """The tenant's ends of its three streams, and the ends that the launcher gets."""
        ours: list[int] = []
        if asked.get("stdin") == "relayed":
            given, write = self._pipe()
            ours.append(write)
        elif asked.get("stdin") == "given":
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

    def _hand_over(self, process: Process, fds: list[int]) -> Process:
        """Sends our ends to the launcher. If the launcher is gone, ends the process and raises OSError."""
        try:
            self._connection.sendmsg(
                [_WORD.pack(b"S", len(fds))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))]
            )
        except BaseException:
            process.close()
            raise
        self._close()  # only the tenant and the launcher hold them now, so that each sees the other's end
        return process

    def _close(self) -> None:
        mine, self._mine = self._mine, []
        frames.close_all(mine)

    def _say(self, letter: bytes, value: int, more: bytes = b"") -> None:
        self._connection.sendall(_WORD.pack(letter, value) + more)

    def _until_the_end(self, process: Process) -> None:
        """Waits for the command and forwards signals. Kills it if the launcher goes.

        Raises SandboxClosed or GuestError."""
        poll = select.poll()
        poll.register(process.fileno(), select.POLLIN)
        poll.register(self._connection, select.POLLIN)
        while process.result is None:
            ready = [fd for fd, _ in poll.poll()]
            if process.fileno() in ready:
                process.advance()
            elif not self._pass_signal(process):
                poll.unregister(self._connection)
                process.kill()

    def _pass_signal(self, process: Process) -> bool:
        """Forwards one signal. Returns False when the launcher is gone or does not follow the protocol."""
        try:
            word = self._connection.recv(_WORD.size, socket.MSG_WAITALL)
        except OSError:
            return False
        if len(word) != _WORD.size:
            return False
        letter, number = _WORD.unpack(word)
        if letter == b"G" and 0 < number < 65:
            process.signal(number)
        return True


class Environments:
    """A command's variables: those of its launcher that the rules let through, and the sandbox's own.

    The sandbox's own are those that differ from its owner's variables: the home, the placeholders of secrets, the
    paths of certificates. PATH is the launcher's, if it was changed for this command.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._rules = EnvFilter.of(sandbox.config, os.environ)
        at_start = self._rules.filter(os.environ)
        self._own = {
            name: value
            for name, value in sandbox._plan.environment.items()
            if at_start.get(name) != value or name in self._rules.set
        }
        self._path = os.environ.get("PATH")
        # Most commands of a program have the same variables.
        self._last: tuple[bytes, _Variables] = b"", _Variables({})

    def of(self, block: bytes) -> _Variables:
        """The command's variables. In `block`, NUL ends each of the launcher's."""
        given, made = self._last
        if given != block or not given:
            made = self._made(block)
            self._last = block, made
        return made

    def _made(self, block: bytes) -> _Variables:
        pairs = (os.fsdecode(entry).partition("=") for entry in block.split(b"\0"))
        given = {name: value for name, equals, value in pairs if equals and name}
        own = dict(self._own)
        if given.get("PATH", self._path) != self._path:
            own.pop("PATH", None)
        return _Variables({**self._rules.filter(given), **own})


class _Variables:
    """A command's variables, by name and as the guest takes them."""

    def __init__(self, by_name: dict[str, str]) -> None:
        self.by_name = by_name
        self.pairs = EncodedOnce(os.fsencode(f"{name}={value}") for name, value in by_name.items())
        self._by_bash = "", self.pairs  # the last directory, and what bash would pass there

    def as_by_bash(self, directory: str) -> EncodedOnce:
        """With what bash would add in that directory."""
        last, pairs = self._by_bash
        if last != directory:
            pairs = EncodedOnce(with_defaults(self.pairs, os.fsencode(directory)))
            self._by_bash = directory, pairs
        return pairs


def _anonymous_pipe(fd: int) -> bool:
    return stat.S_ISFIFO(os.fstat(fd).st_mode) and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:")


def _string(asked: Mapping[str, Any], key: str, nul: bool = False) -> bytes:
    value = asked.get(key)
    if not isinstance(value, bytes) or (b"\0" in value and not nul):
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
